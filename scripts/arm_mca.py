"""Finds the loops of the register tiles in AArch64 kernel objects and runs llvm-mca on them: see arm_mca.sh."""
import re
import shutil
import subprocess
import sys

ITERATIONS = 300
# What is looked for: how a row is called, kernel set, tile function and its template arguments, multiply instruction,
# CPU models. The arguments of arm_tile are words, units (a row, or two for matrix instructions) and cache lines fetched
# per word of K; of decoded_tile words and rows.
MATRIX = {"bf16": "MatrixWords<float>", "int8": "MatrixWords<int>"}
LOOPS = [
    ("f32, 6 rows", "neon_dotprod", "arm_tile<F32Lanes, 6, 0>", "fmla", ["n1", "v2"]),
    ("f32, 1 row", "neon_dotprod", "arm_tile<F32Lanes, 1, 0>", "fmla", ["n1", "v2"]),
    ("bf16 widened, 8 rows", "neon_dotprod", "arm_tile<Bf16Lanes, 8, 0>", "fmla", ["n1"]),
    ("bf16 widened, 1 row", "neon_dotprod", "arm_tile<Bf16Lanes, 1, 0>", "fmla", ["n1"]),
    ("int8, 6 rows", "neon_dotprod", "arm_tile<Int8Lanes, 6, 0>", "sdot", ["n1"]),
    ("int8, 1 row", "neon_dotprod", "arm_tile<Int8Lanes, 1, 0>", "sdot", ["n1"]),
    ("narrow weights, f32 rows, 6 rows", "neon_dotprod", "decoded_tile<F32Words, 6>", "fmla", ["n1"]),
    ("narrow weights, bf16 rows, 6 rows", "neon_dotprod", "decoded_tile<Bf16Words, 6>", "fmla", ["n1"]),
    ("bf16, 8 rows", "neon_i8mm_bf16", f"arm_tile<{MATRIX['bf16']}, 4, 0>", "bfmmla", ["n2", "v2", "v1"]),
    ("bf16, 6 rows", "neon_i8mm_bf16", f"arm_tile<{MATRIX['bf16']}, 3, 0>", "bfmmla", ["n2", "v2", "v1"]),
    ("bf16, 1 row", "neon_i8mm_bf16", f"arm_tile<{MATRIX['bf16']}, 1, 0>", "bfmmla", ["n2", "v2", "v1"]),
    ("bf16, 1 row, fetching ahead", "neon_i8mm_bf16", f"arm_tile<{MATRIX['bf16']}, 1, 8>", "bfmmla", ["n2", "v2"]),
    ("int8, 8 rows", "neon_i8mm_bf16", f"arm_tile<{MATRIX['int8']}, 4, 0>", "smmla", ["n2", "v2", "v1"]),
    ("int8, 1 row", "neon_i8mm_bf16", f"arm_tile<{MATRIX['int8']}, 1, 0>", "smmla", ["n2", "v2", "v1"]),
    ("f32, 6 rows", "sve256_i8mm_bf16", "arm_tile<F32Lanes, 6, 0>", "fmla", ["v1"]),
    ("f32, 1 row", "sve256_i8mm_bf16", "arm_tile<F32Lanes, 1, 0>", "fmla", ["v1"]),
    ("bf16, 8 rows", "sve256_i8mm_bf16", f"arm_tile<{MATRIX['bf16']}, 4, 0>", "bfmmla", ["v1"]),
    ("bf16, 1 row", "sve256_i8mm_bf16", f"arm_tile<{MATRIX['bf16']}, 1, 0>", "bfmmla", ["v1"]),
    ("int8, 8 rows", "sve256_i8mm_bf16", f"arm_tile<{MATRIX['int8']}, 4, 0>", "smmla", ["v1"]),
    ("int8, 1 row", "sve256_i8mm_bf16", f"arm_tile<{MATRIX['int8']}, 1, 0>", "smmla", ["v1"]),
]


def fail(text):
    sys.exit(f"arm_mca: {text}")


def tile_name(symbol):
    """'arm_tile<F32Lanes, 6, 0>' of a demangled function, or None."""
    plain = re.sub(r"epmoe::kernels::|\(anonymous namespace\)::| __vector\(\d+\)|\(__vector\(\d+\)\)", "", symbol)
    found = re.search(r"\b(arm_tile|decoded_tile)<.*?>(?=\()", plain)
    return found[0].replace("> >", ">>") if found else None


def loops_of(path):
    """Tile name: the instructions of its loop, without the branch. A tile has one loop without branches inside."""
    objdump = next((x for x in ("aarch64-linux-gnu-objdump", "llvm-objdump-19", "objdump") if shutil.which(x)), None)
    if objdump is None:
        fail("no objdump for AArch64")
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], check=True, capture_output=True, text=True)
    loops, name, lines, index = {}, None, [], {}
    for line in text.stdout.splitlines():
        if header := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            name, lines, index = tile_name(header[1]), [], {}
        elif name and (code := re.match(r"\s*([0-9a-f]+):\s+(.*)", line)):
            index[int(code[1], 16)] = len(lines)
            lines.append(re.sub(r"\s*(//|;).*", "", code[2]).strip())
            if branch := re.match(r"b\.\w+\s+(?:0x)?([0-9a-f]+)", lines[-1]):
                first = index.get(int(branch[1], 16))
                if first is None:
                    continue
                body = lines[first:-1]
                if not any(re.match(r"(b|bl|br|ret|cbn?z|tbn?z|b\.\w+)\s", x) for x in body):
                    if len(body) > len(loops.get(name, [])):
                        loops[name] = body
    return loops


def cycles(body, cpu):
    """Cycles per iteration."""
    command = ["llvm-mca-19", "-mtriple=aarch64", f"-mcpu=neoverse-{cpu}", "-mattr=+sve,+bf16,+i8mm,+dotprod",
               f"-iterations={ITERATIONS}"]
    run = subprocess.run(command, input="\n".join(body) + "\n", capture_output=True, text=True)
    found = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    if not found:
        fail(f"llvm-mca for neoverse-{cpu}: {run.stderr.strip().splitlines()[:1]}")
    return int(found[1]) / ITERATIONS


def operation(line):
    return line.split()[0]


def peak(lines, cpu):
    """Cycles of one instruction where there is nothing else to do and nothing to wait for."""
    return cycles(lines, cpu) / len(lines)


def multiply_peak(body, opcode, cpu):
    """Of the loop's own multiplications, each onto a register of its own."""
    example = next(x for x in body if operation(x) == opcode)
    kind = re.search(r"\s([vz])\d+\.(\w+),\s*[vz]\d+\.(\w+),\s*[vz]\d+\.(\w+)(\[\d+\])?", example)
    lane = kind[5] or ""
    return peak([f"{opcode} {kind[1]}{i}.{kind[2]}, {kind[1]}31.{kind[3]}, {kind[1]}7.{kind[4]}{lane}"
                 for i in range(8, 31)], cpu)


def load_peak(body, cpu):
    if any(re.search(r"\bz\d", x) for x in body):
        return peak([f"ld1w {{z{i}.s}}, p0/z, [x{i % 8}]" for i in range(24)], cpu)
    return peak([f"ldr q{i}, [x{i % 8}]" for i in range(24)], cpu)


def loads(body):
    """Vector loads; a pair counts as two."""
    return sum(2 if operation(x) == "ldp" else 1 for x in body
               if re.match(r"ld", x) and re.search(r"\b[sdqvz]\d", x) and "[sp" not in x)


def main(paths):
    found = {}
    for path in paths:
        level = re.search(r"kernels_(\w+)\.cpp\.o$", path)
        if not level:
            fail(f"{path} is no object of a kernel set")
        for name, body in loops_of(path).items():
            found[level[1], name] = body
    print("| loop | kernel set | Neoverse | instruction | per iteration | loads | spills | cycles | of the multiply peak "
          "| of the load peak |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for title, level, name, opcode, cpus in LOOPS:
        body = found.get((level, name)) or fail(f"{level} has no loop of {name}; it has "
                                                f"{', '.join(sorted(n for l, n in found if l == level))}")
        count = sum(operation(x) == opcode for x in body)
        if count == 0:
            fail(f"the loop of {name} in {level} has no {opcode}")
        stores = sum(operation(x).startswith("st") for x in body)
        for cpu in cpus:
            spent = cycles(body, cpu)
            print(f"| {title} | {level} | {cpu.upper()} | {opcode.upper()} | {count} | {loads(body)} | {stores} "
                  f"| {spent:.1f} | {count * multiply_peak(body, opcode, cpu) / spent:.2f} "
                  f"| {loads(body) * load_peak(body, cpu) / spent:.2f} |")


main(sys.argv[1:])
