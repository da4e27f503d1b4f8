"""scripts/arm_report.sh: the file that users of Arm servers send, here in its tiny form on whatever CPU this is."""
import json
import os
import platform
import subprocess
import unittest

import harness
from harness import OPTIONS, CliTest

SCRIPT = os.path.join(os.path.dirname(__file__), "..", "..", "scripts", "arm_report.sh")
BUILD = os.path.dirname(os.path.dirname(OPTIONS.epmoe))


def report(*arguments):
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL,
                          check=False)


class ArmReport(CliTest):
    @unittest.skipIf(OPTIONS.emulator, "it starts the programs itself, without an emulator")
    def test_tiny_report(self):
        result = report("--tiny", "--build", BUILD, "--output", self.path("report.json"))
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("report.json"), encoding="utf-8") as file:
            content = json.load(file)
        self.assertEqual(self.files(), ["report.json"])
        self.assertEqual((content["report"], content["tiny"]), ("epmoe", True))

        machine = content["machine"]
        self.assertEqual(machine["architecture"], platform.machine())
        self.assertTrue(machine["cpu_features"])
        self.assertGreaterEqual(machine["cores"], machine["cores_of_this_process"])
        self.assertGreater(machine["memory_bytes"], 0)

        sets = content["kernel_sets"]
        self.assertIn("generic", sets["usable"])
        self.assertLessEqual(set(sets["usable"]), set(sets["built"]))
        self.assertEqual(set(sets["chosen"]), {"bf16", "int8"})
        self.assertEqual(set(sets["chosen"].values()), {sets["usable"][0]})

        order = content["memory_order"]
        self.assertEqual((order["runs"], order["failures"]), (1, 0))
        self.assertGreater(order["slots"], 0)
        self.assertGreaterEqual(order["messages_out_of_order"], 0)

        self.assertEqual({(p["threads"], p["format"]) for p in content["probes"]}, {(1, "bf16"), (1, "int8")})
        for probe in content["probes"]:
            self.assertGreater(probe["read_bytes_per_s"], 0)
            self.assertGreater(probe["peak_flops"], 0)
        for line in content["bench_experts"] + content["bench_kernel_sets"]:
            self.assertIs(line["checked"], True)
            self.assertGreater(line["median_s"], 0)
        self.assertEqual({(l["format"], l["tokens"]) for l in content["bench_experts"]},
                         {(f, t) for f in ("bf16", "int8") for t in (1, 8)})
        self.assertEqual([line["isa"] for line in content["bench_kernel_sets"]], sets["usable"])

        self.assertEqual([r["pipeline"] for r in content["overlap"]], [1, 2])
        for run in content["overlap"]:
            self.assertEqual((run["run"]["ranks"], run["run"]["ok"]), (2, True))
            self.assertIn("wait", run["run"]["layers"][0]["phase_s"])

    def test_what_is_refused(self):
        for arguments, code, message in (
                (["--build", self.dir], 1, f"found no epmoe in {self.dir}/bin, wanted a build"),
                (["--output"], 2, "usage: "), (["--small"], 2, "usage: "),
                (["--build", BUILD, "--output", self.path("none/report.json")], 1, "cannot write ")):
            with self.subTest(arguments):
                result = report(*arguments)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
                self.assertIn(message, result.stderr)
        self.assertEqual(self.files(), [])


harness.main()
