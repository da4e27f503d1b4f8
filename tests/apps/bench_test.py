"""`epmoe bench experts`: the lines it writes agree with themselves, and what it refuses. No times are compared."""
import json
import os
import shlex
import sys

import harness
from harness import CliTest

SHAPE = ("--hidden", "96", "--intermediate", "80", "--experts", "4", "--topk", "2")
TEXT = ("model", "format", "backend", "isa", "skew")
COUNTS = ("tokens", "threads", "repeats", "rejected")
NUMBERS = ("median_s", "p10_s", "p90_s", "floor_s", "floor_fraction", "expert_bytes", "flops", "read_bytes_per_s",
           "peak_flops")
WEIGHTS = 3 * 96 * 80
BYTES = {  # of one expert
    "f32": 4 * WEIGHTS, "bf16": 2 * WEIGHTS, "int8": WEIGHTS + 4 * (2 * 80 + 96), "f16": 2 * WEIGHTS,
    "fp8_block": WEIGHTS + 4 * 3, "fp8_channel": WEIGHTS + 4 * (2 * 80 + 96),
    "int4_g32": WEIGHTS / 2 + 4 * (2 * 80 * 3 + 96 * 3), "mxfp4": WEIGHTS / 2 + 2 * 80 * 3 + 96 * 3,
}


class Experts(CliTest):
    def lines(self, *arguments):
        result = self.run_fine(0, "bench", "experts", *SHAPE, "--repeats", "3", "--json", "-", *arguments, timeout=240)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def check_line(self, line):
        self.assertEqual(set(line), {"bench", "checked", "steady", "phase_s", *TEXT, *COUNTS, *NUMBERS})
        self.assertEqual(line["bench"], "experts")
        for key in TEXT:
            self.assertIsInstance(line[key], str)
            self.assertTrue(line[key], key)
        for key in COUNTS:
            self.assertIsInstance(line[key], int)
        for key in NUMBERS:
            self.assertIsInstance(line[key], float)
            self.assertGreater(line[key], 0.0, key)
        self.assertIs(line["checked"], True)
        self.assertIsInstance(line["steady"], bool)
        self.assertEqual(set(line["phase_s"]), {"permute", "gemm1", "act", "gemm2"})
        self.assertLessEqual(line["p10_s"], line["median_s"])
        self.assertLessEqual(line["median_s"], line["p90_s"])
        self.assertEqual(line["floor_fraction"], line["floor_s"] / line["median_s"])
        self.assertEqual(line["floor_s"], max(line["expert_bytes"] / line["read_bytes_per_s"],
                                              line["flops"] / line["peak_flops"]))
        self.assertEqual(line["flops"], 2 * WEIGHTS * line["tokens"] * 2)
        # Of the median sample, or half way between two.
        self.assertEqual(2 * line["expert_bytes"] % BYTES[line["format"]], 0)
        self.assertLessEqual(line["expert_bytes"], 4 * BYTES[line["format"]])
        if line["tokens"] == 1:
            self.assertEqual(line["expert_bytes"], 2 * BYTES[line["format"]])
        kept = line["repeats"] if line["repeats"] + line["rejected"] == 3 else 0  # none was kept: all count
        self.assertEqual(line["steady"], 2 * kept >= 3)

    def test_lines_agree_with_themselves(self):
        lines = self.lines("--formats", ",".join(BYTES), "--tokens", "1,20", "--skew", "uniform,zipf", "--threads", "1,2",
                           "--backends", "native")
        self.assertEqual([tuple(line[key] for key in ("format", "tokens", "skew", "threads")) for line in lines],
                         [(f, t, s, n) for f in BYTES for t in (1, 20) for s in ("uniform", "zipf") for n in (1, 2)])
        for line in lines:
            with self.subTest(line=line):
                self.check_line(line)
                self.assertEqual((line["model"], line["backend"]), ("custom", "native"))

    def test_kernel_sets_side_by_side_and_a_file(self):
        path = self.path("bench.json")
        result = self.run_fine(0, "bench", "experts", *SHAPE, "--repeats", "2", "--tokens", "3", "--formats", "f32",
                               "--backends", "native", "--isa", "generic", "--json", path)
        self.assertIn("generic", result.stdout)
        with open(path, encoding="utf-8") as file:
            (line,) = map(json.loads, file)
        self.assertEqual(line["isa"], "generic")

    def test_model_shapes_can_be_changed(self):
        result = self.run_fine(0, "bench", "experts", "--model", "qwen3-30b-a3b", "--hidden", "64", "--intermediate", "32",
                               "--experts", "8", "--tokens", "2", "--repeats", "1", "--formats", "bf16", "--backends",
                               "native", "--json", "-")
        line = json.loads(result.stdout)
        self.assertEqual(line["model"], "qwen3-30b-a3b")
        self.assertEqual(line["flops"], 2 * 3 * 64 * 32 * 2 * 8)


class Peers(CliTest):
    def peer(self, mode):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_peer.py")
        return shlex.join([sys.executable, script, mode, self.path("asked")])

    def bench(self, mode, *arguments):
        return ("bench", "experts", *SHAPE, "--repeats", "3", "--formats", "f32", "--backends", "native", "--peer",
                self.peer(mode), *arguments)

    def test_takes_turns_with_ours_on_the_same_routing(self):
        result = self.run_fine(0, *self.bench("fine", "--tokens", "5", "--skew", "zipf", "--threads", "2", "--json", "-"))
        ours, line = map(json.loads, result.stdout.splitlines())
        self.assertEqual((ours["backend"], line["backend"], line["isa"]), ("native", "stand-in", "none"))
        self.assertEqual((line["median_s"], line["checked"], line["flops"]), (0.25, True, ours["flops"]))
        with open(self.path("asked"), encoding="utf-8") as file:
            asked = [json.loads(question) for question in file]
        self.assertEqual([question["ask"] for question in asked], ["layer"] + 3 * ["batch"] + 3 * ["run"])
        self.assertEqual(asked[0], {"ask": "layer", "format": "f32", "hidden": 96, "intermediate": 80, "experts": 4,
                                    "seed": 0})
        self.assertEqual([question["set"] for question in asked[1:]], [0, 1, 2, 0, 1, 2])
        batches = asked[1:4]
        for batch in batches:
            self.assertEqual((batch["tokens"], batch["top_k"], batch["threads"]), (5, 2, 2))
            self.assertEqual(len(batch["ids"]), 10)
            for first, second in zip(batch["ids"][::2], batch["ids"][1::2]):
                self.assertNotEqual(first, second)
                self.assertTrue({first, second} <= set(range(4)))
        self.assertEqual(len({tuple(batch["ids"]) for batch in batches}), 3, "the routing is drawn anew for each sample")
        self.assertEqual(2 * line["expert_bytes"] % 1000.0, 0.0)
        self.assertLessEqual(line["expert_bytes"], 4000.0)

    def test_one_that_did_not_check_is_not_called_checked(self):
        result = self.run_fine(0, *self.bench("blind", "--tokens", "2", "--json", "-"))
        self.assertEqual([json.loads(line)["checked"] for line in result.stdout.splitlines()], [True, False])

    def test_one_that_refuses_is_left_out(self):
        result = self.run_fine(0, *self.bench("refuses", "--tokens", "2", "--json", "-"))
        self.assertEqual([json.loads(line)["backend"] for line in result.stdout.splitlines()], ["native"])
        self.assertIn("no such format", result.stderr)

    def test_a_wrong_result_ends_with_1(self):
        self.refused(0, self.bench("wrong", "--json", "-"), "wrong result: stand-in", "relative error 0.5", code=1)

    def test_one_that_breaks_off_ends_with_2(self):
        for mode, message in (("dies", "exit code 7"), ("babbles", "nonsense"), ("frozen", "seconds 0")):
            with self.subTest(mode=mode):
                self.refused(0, self.bench(mode, "--json", "-"), "--peer", "bench_peer.py", message)
        self.refused(0, self.bench("fine", "--peer", "exit 9", "--json", "-"), "--peer exit 9", "exit code 9")


class Refusals(CliTest):
    def test_exit_2_and_one_line(self):
        for arguments, messages in (
            (("bench", "experts"), ("--model", "--hidden")),
            (("bench", "experts", "--model", "nonsense"), ("nonsense", "qwen3-30b-a3b")),
            (("bench", "step", *SHAPE), ("bench step: not built yet", "experts")),
            (("bench", "nonsense", *SHAPE), ("bench nonsense: unknown", "experts")),
            (("bench", "experts", *SHAPE, "--formats", "nonsense"), ("--formats nonsense", "bf16", "mxfp4")),
            (("bench", "experts", *SHAPE, "--backends", "nonsense"), ("--backends nonsense", "native")),
            (("bench", "experts", *SHAPE, "--skew", "nonsense"), ("--skew nonsense", "zipf")),
            (("bench", "experts", *SHAPE, "--isa", "nonsense"), ("--isa nonsense",)),
            (("bench", "experts", *SHAPE, "--isa", "generic", "--backends", "reference"), ("--isa generic", "native")),
            (("bench", "experts", *SHAPE, "--json", "/dev/null"), ("/dev/null", "a regular file")),
            (("bench", "experts", *SHAPE, "--tokens", "0"), ("--tokens 0", "1 or more")),
            (("bench", "experts", *SHAPE, "--tokens", "4,4"), ("--tokens", "twice")),
            (("bench", "experts", *SHAPE, "--repeats", "0"), ("--repeats 0", "1 or more")),
            (("bench", "experts", *SHAPE, "--threads", "0"), ("--threads 0", "1 or more")),
            (("bench", "experts", *SHAPE[:-1], "5"), ("top_k",)),
            (("bench", "experts", *SHAPE, "--json", "/nowhere/x.json"), ("/nowhere/x.json",)),
        ):
            with self.subTest(arguments=arguments):
                self.refused(0, arguments, *messages)

    def test_more_than_one_rank(self):
        self.refused(2, ("bench", "experts", *SHAPE), "one process", "2 ranks")


if __name__ == "__main__":
    harness.main()
