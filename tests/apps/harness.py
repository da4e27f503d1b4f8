"""Starts the epmoe command under mpirun, and reads and writes small safetensors files. Standard library only."""
import argparse
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

_parser = argparse.ArgumentParser()
_parser.add_argument("--epmoe", required=True, help="the command")
_parser.add_argument("--mpiexec", default="mpirun")
_parser.add_argument("--emulator", default="", help="what the command runs under, if anything")
_parser.add_argument("--work", required=True, help="directory for files of the tests")
OPTIONS, UNITTEST_ARGUMENTS = _parser.parse_known_args()


def command(ranks, *arguments):
    """The whole command line; ranks 0 starts without mpirun."""
    start = [OPTIONS.mpiexec, "-n", str(ranks)] if ranks else []
    emulator = OPTIONS.emulator.split(";") if OPTIONS.emulator else []
    return start + emulator + [OPTIONS.epmoe, *map(str, arguments)]


def two_ranks(first, second, timeout=60):
    """Runs another command line on each of two ranks: each is (directory, arguments of epmoe).

    One mpirun command for all ranks, which choose by their number: the launcher of Open MPI 5.0.7 crashes on
    `mpirun … : …`."""
    choose = " ".join(f'{rank}) cd {shlex.quote(directory)} && exec {shlex.join(command(0, *arguments))} ;;'
                      for rank, (directory, arguments) in enumerate((first, second)))
    script = f'case "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" in {choose} esac; echo "no rank number found" >&2; exit 99'
    return subprocess.run([OPTIONS.mpiexec, "-n", "2", "sh", "-c", script], capture_output=True, text=True,
                          timeout=timeout, check=False)


def environment(changes=None):
    """Ours, with some variables set or (None) removed."""
    return {name: value for name, value in {**os.environ, **(changes or {})}.items() if value is not None}


def epmoe(ranks, *arguments, timeout=60, env=None, cwd=None):
    """Runs to its end; a hang is a failure."""
    return subprocess.run(command(ranks, *arguments), capture_output=True, text=True, timeout=timeout,
                          env=environment(env), cwd=cwd, stdin=subprocess.DEVNULL, check=False)


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, at, data = {}, 0, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(values)]}
        at += len(values)
        data += values
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """name -> (dtype, shape, list of values); F32 and I32 only."""
    with open(path, "rb") as file:
        content = file.read()
    (size,) = struct.unpack("<Q", content[:8])
    tensors = {}
    for name, info in json.loads(content[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        code = {"F32": "f", "I32": "i"}[info["dtype"]]
        values = struct.unpack(f"<{(end - begin) // 4}{code}", content[8 + size + begin:8 + size + end])
        tensors[name] = (info["dtype"], info["shape"], values)
    return tensors


class CliTest(unittest.TestCase):
    def setUp(self):
        os.makedirs(OPTIONS.work, exist_ok=True)
        self.dir = tempfile.mkdtemp(dir=OPTIONS.work)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def files(self):
        return sorted(os.listdir(self.dir))

    def run_fine(self, ranks, *arguments, **options):
        result = epmoe(ranks, *arguments, **options)
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result

    def run_json(self, ranks, *arguments, **options):
        return json.loads(self.run_fine(ranks, *arguments, "--json", "-", **options).stdout)

    def refused(self, ranks, arguments, *messages, code=2, **options):
        """Exit code `code`, one line of ours with all of `messages`, nothing on stdout."""
        result = epmoe(ranks, *arguments, **options)
        text = f"{arguments}\n{result.stdout}\n{result.stderr}"
        self.assertEqual(result.returncode, code, text)
        lines = [line for line in result.stderr.splitlines() if line.startswith("epmoe: ")]
        self.assertEqual(len(lines), 1, text)
        for message in messages:
            self.assertIn(message, lines[0], text)
        for line in result.stdout.splitlines():  # launchers may print there too
            self.assertFalse(line.startswith(("model ", "layer ", "{")), text)
        return lines[0]


def main():
    unittest.main(argv=[sys.argv[0], "-v", *UNITTEST_ARGUMENTS])
