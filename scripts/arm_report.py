"""Measures a build of epmoe and writes one JSON file: see arm_report.sh. Standard library only."""
import argparse
import datetime
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

FULL = {
    "shape": ["--model", "qwen3-30b-a3b"],
    "experts": ["--tokens", "1,8,64,512,2048", "--formats", "f32,bf16,int8,int4_g128,fp8_block,mxfp4", "--repeats", "7"],
    "kernel_sets": ["--tokens", "1,64,512", "--formats", "f32,bf16,int8", "--repeats", "5"],
    "overlap": ["--tokens", "4096", "--repeat", "10"],
    "memory_order_runs": 50,
}
TINY = {
    "shape": ["--hidden", "96", "--intermediate", "80", "--experts", "4", "--topk", "2"],
    "experts": ["--tokens", "1,8", "--formats", "bf16,int8", "--repeats", "3", "--threads", "1"],
    "kernel_sets": ["--tokens", "8", "--formats", "bf16", "--repeats", "3", "--threads", "1"],
    "overlap": ["--tokens", "32", "--repeat", "2"],
    "memory_order_runs": 1,
}
NO_SUCH_SET = "none_of_these"


def fail(text):
    sys.exit(f"scripts/arm_report.sh: {text}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, allowed=(0,)):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode not in allowed:
        output = (result.stderr.strip() or result.stdout.strip()).splitlines() or ["no output"]
        fail(f"{' '.join(map(str, command))} ended with {result.returncode}: {output[-1]}")
    return result


def first_line(*command):
    if shutil.which(command[0]) is None:
        return None
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return next(iter(result.stdout.splitlines()), None) if result.returncode == 0 else None


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def machine(mpiexec):
    cpuinfo = read("/proc/cpuinfo")
    features = re.search(r"^(?:Features|flags)\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", read("/proc/meminfo"), re.MULTILINE)
    lscpu = run(["lscpu", "-J"]).stdout if shutil.which("lscpu") else None
    return {
        "architecture": platform.machine(),
        "cpu_features": features[1].split() if features else [],
        "cores": os.cpu_count(),
        "cores_of_this_process": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory[1]) * 1024 if memory else None,
        "lscpu": json.loads(lscpu)["lscpu"] if lscpu else None,
        "kernel": platform.release(),
        "huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled").strip() or None,
        "compiler": first_line("c++", "--version"),
        "mpi": first_line(mpiexec, "--version"),
    }


class Report:
    def __init__(self, options):
        self.sizes = TINY if options.tiny else FULL
        self.mpiexec = options.mpiexec
        self.epmoe = os.path.join(options.build, "bin", "epmoe")
        self.memory_order_test = os.path.join(options.build, "bin", "memory_order_test")

    def bench(self, *arguments):
        result = run([self.epmoe, "bench", "experts", *self.sizes["shape"], "--json", "-", *arguments])
        return [json.loads(line) for line in result.stdout.splitlines()]

    def kernel_sets(self):
        """Names that were built, best first, and those that this CPU can run: epmoe refuses the others."""
        asked = [self.epmoe, "bench", "experts", *TINY["shape"], *TINY["kernel_sets"], "--backends", "native", "--isa"]
        refusal = run([*asked, NO_SUCH_SET], allowed=(2,)).stderr
        known = re.search(r"known: (.*)$", refusal, re.MULTILINE)
        if not known:
            fail(f"epmoe names no kernel sets: {refusal.strip()}")
        built = known[1].split(", ")
        usable = [name for name in built if run([*asked, name], allowed=(0, 2)).returncode == 0]
        return {"built": built, "usable": usable}

    def memory_order(self):
        """Failures of repeated runs, and the control: what the machine reordered where nothing was ordered."""
        totals = {"runs": 0, "failures": 0, "slots": 0, "messages_out_of_order": 0, "stores_after_loads": 0}
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "result.json")
            for _ in range(self.sizes["memory_order_runs"]):
                run([self.memory_order_test, f"--gtest_output=json:{path}"], allowed=(0, 1))
                with open(path, encoding="utf-8") as file:
                    result = json.load(file)
                totals["runs"] += 1
                totals["failures"] += result["failures"]
                for suite in result["testsuites"]:
                    for test in suite["testsuite"]:
                        for key in ("slots", "messages_out_of_order", "stores_after_loads"):
                            totals[key] += int(test.get(key, 0))
        if totals["slots"] == 0:
            fail("the memory order test counted nothing")
        return totals

    def overlap(self):
        """`epmoe run` on two ranks: one slice of tokens at a time, then two in flight."""
        runs = []
        for slices in ("1", "2"):
            result = run([self.mpiexec, "-n", "2", self.epmoe, "run", *self.sizes["overlap"], "--pipeline", slices,
                          "--json", "-"])
            runs.append({"pipeline": int(slices), "run": json.loads(result.stdout[result.stdout.index("{"):])})
        return runs


def probes(lines):
    """What memory and multipliers gave beside the samples: medians per number of threads."""
    found = {}
    for line in lines:
        found.setdefault((line["threads"], line["format"]), []).append(line)
    return [{"threads": threads, "format": number_format,
             "read_bytes_per_s": statistics.median(line["read_bytes_per_s"] for line in group),
             "peak_flops": statistics.median(line["peak_flops"] for line in group)}
            for (threads, number_format), group in sorted(found.items())]


def measure(options):
    report = Report(options)
    threads = [] if options.tiny else ["--threads", ",".join(map(str, sorted({1, len(os.sched_getaffinity(0))})))]
    say("kernel sets")
    sets = report.kernel_sets()
    say("memory order test")
    memory_order = report.memory_order()
    say("epmoe bench experts")
    lines = report.bench(*report.sizes["experts"], *threads)
    say("epmoe bench experts, all kernel sets")
    by_set = report.bench(*report.sizes["kernel_sets"], *threads, "--backends", "native", "--isa", ",".join(sets["usable"]))
    say("two ranks")
    overlap = report.overlap()
    chosen = {line["format"]: line["isa"] for line in lines if line["backend"] == "native"}
    return {
        "report": "epmoe",
        "version": run([report.epmoe, "--version"]).stdout.strip(),
        "commit": first_line("git", "-C", options.root, "rev-parse", "HEAD"),
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "tiny": options.tiny,
        "machine": machine(options.mpiexec),
        "kernel_sets": {**sets, "chosen": chosen},
        "memory_order": memory_order,
        "probes": probes(lines),
        "bench_experts": lines,
        "bench_kernel_sets": by_set,
        "overlap": overlap,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--mpiexec", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    partial = options.output + ".partial"
    try:  # before the time is spent
        output = open(partial, "w", encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {partial}: {error.strerror}")
    try:
        with output:
            json.dump(measure(options), output, indent=1)
            output.write("\n")
        os.replace(partial, options.output)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
    say(f"written: {options.output}")


main()
