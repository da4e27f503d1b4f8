"""`epmoe run` with good flags: the default job, every built strategy and dtype, output, input, JSON."""
import json
import math
import random
import struct
import unittest

import harness
from harness import CliTest, read_safetensors, write_safetensors

HIDDEN, EXPERTS, TOP_K = 512, 64, 8  # of the built-in model


class DefaultJob(CliTest):
    def test_verifies_on_any_number_of_ranks(self):
        for ranks in (0, 1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                out = self.run_fine(ranks, "run", "--verify").stdout
                self.assertIn("verify: ok", out)
                self.assertIn(f"{max(ranks, 1)} rank", out)
                self.assertIn("256 tokens", out)
                self.assertIn("strategy local" if ranks < 2 else "strategy alltoall", out)

    def test_help_and_version(self):
        self.assertIn("run", self.run_fine(2, "--help").stdout)
        self.assertEqual(self.run_fine(2, "run", "--help").stdout.count("--verify"), 1)
        self.assertRegex(self.run_fine(0, "--version").stdout, r"^\d+\.\d+\.\d+")


class Settings(CliTest):
    def test_strategies_and_dtypes(self):
        for flags, expected in (
            ("--strategy allgather", {"strategy": "allgather"}),
            ("--strategy alltoall --placement round_robin", {"placement": "round_robin"}),
            ("--compute-dtype f32", {"compute_dtype": "f32", "dispatch_dtype": "f32", "combine_dtype": "f32"}),
            ("--compute-dtype bf16 --dispatch-dtype f16", {"dispatch_dtype": "f16", "combine_dtype": "bf16"}),
            ("--compute-dtype int8", {"compute_dtype": "int8", "dispatch_dtype": "int8"}),
            ("--compute-dtype f32 --combine-dtype bf16", {"combine_dtype": "bf16"}),
            ("--backend native --threads 2", {"backend": "native", "threads": 2}),
            ("--chunk-size 7 --pipeline 2", {}),
            ("--chunk-size 0 --shared-threshold 0 --repeat 2", {"repeat": 2}),
            ("--reproducible", {"reproducible": True, "combine_dtype": "f32"}),
        ):
            with self.subTest(flags=flags):
                found = self.run_json(2, "run", "--verify", "--tokens", 40, *flags.split())
                self.assertTrue(found["layers"][0]["verify"]["ok"])
                self.assertEqual({key: found[key] for key in expected}, expected)

    def test_chunks_are_cut(self):
        whole = self.run_json(2, "run", "--tokens", 40, "--chunk-size", 0)["layers"][0]["chunks_per_rank"]
        cut = self.run_json(2, "run", "--tokens", 40, "--chunk-size", 7)["layers"][0]["chunks_per_rank"]
        self.assertEqual(whole, [1, 1])
        self.assertEqual(cut, [math.ceil(40 / 7)] * 2)  # with top-8 of 64 every token has experts on both ranks

    def test_layers(self):
        self.assertEqual([x["layer"] for x in self.run_json(1, "run", "--tokens", 3)["layers"]], [0])
        self.assertEqual([x["layer"] for x in self.run_json(1, "run", "--tokens", 3, "--layers", "2,0")["layers"]], [2, 0])
        self.assertEqual([x["layer"] for x in self.run_json(1, "run", "--tokens", 3, "--layers", "all")["layers"]], [0, 1, 2, 3])

    def test_tokens_per_rank(self):
        for split in ("0,7,3", "0,0,0", "1,0,0"):
            found = self.run_json(3, "run", "--verify", "--tokens-per-rank", split)
            self.assertEqual(found["tokens_per_rank"], [int(n) for n in split.split(",")])
        self.assertEqual(self.run_json(3, "run", "--tokens", 8)["tokens_per_rank"], [3, 3, 2])

    def test_expert_map(self):
        def entries(owner):
            with open(self.path("map.json"), "w", encoding="utf-8") as file:
                json.dump(owner, file)
            found = self.run_json(2, "run", "--verify", "--tokens", 20, "--expert-map", self.path("map.json"))
            return found["layers"][0]["entries_per_rank"]

        self.assertEqual(entries([1] * EXPERTS), [0, 20 * TOP_K])
        # Every expert on both ranks: each gets a part of the tokens, none is computed twice.
        both = entries({"owner": [0, 1] * EXPERTS, "logical": [e // 2 for e in range(2 * EXPERTS)]})
        self.assertEqual(sum(both), 20 * TOP_K)
        self.assertGreater(min(both), 0)


class Output(CliTest):
    def output(self, ranks, *flags):
        path = self.path(f"out{ranks}.safetensors")
        self.run_fine(ranks, "run", "--tokens", 37, "--output", path, *flags)
        return path

    def test_reproducible_is_bitwise_the_same(self):
        contents = []
        for ranks, flags in ((1, ()), (2, ()), (3, ("--strategy", "allgather")), (4, ("--threads", 2, "--chunk-size", 7))):
            with open(self.output(ranks, "--reproducible", *flags), "rb") as file:
                contents.append(file.read())
        for content in contents[1:]:
            self.assertEqual(content, contents[0])
        with open(self.output(2, "--reproducible", "--seed", 1), "rb") as file:
            self.assertNotEqual(file.read(), contents[0])

    def test_content(self):
        tensors = read_safetensors(self.output(3, "--layers", "1,3"))
        self.assertEqual(sorted(tensors), [f"layers.{n}.{t}" for n in (1, 3) for t in ("moe_output", "topk_ids", "topk_weights")])
        for layer in (1, 3):
            dtype, shape, y = tensors[f"layers.{layer}.moe_output"]
            self.assertEqual((dtype, shape), ("F32", [37, HIDDEN]))
            self.assertTrue(all(math.isfinite(v) for v in y) and any(y))
            dtype, shape, ids = tensors[f"layers.{layer}.topk_ids"]
            self.assertEqual((dtype, shape), ("I32", [37, TOP_K]))
            dtype, shape, weights = tensors[f"layers.{layer}.topk_weights"]
            self.assertEqual((dtype, shape), ("F32", [37, TOP_K]))
            for t in range(37):
                row = slice(t * TOP_K, (t + 1) * TOP_K)
                self.assertEqual(len(set(ids[row])), TOP_K)
                self.assertTrue(all(0 <= e < EXPERTS for e in ids[row]))
                self.assertAlmostEqual(sum(weights[row]), 1.0, places=5)
                self.assertEqual(list(weights[row]), sorted(weights[row], reverse=True))

    def test_unwritable_leaves_nothing(self):
        self.refused(2, ("run", "--tokens", 4, "--output", self.path("none/out")), "none", "not a directory")
        self.refused(2, ("run", "--tokens", 4, "--output", self.dir), "a directory found")
        self.refused(2, ("run", "--tokens", 4, "--json", self.path("none/out.json")), "none", "not a directory")
        self.assertEqual(self.files(), [])

    def test_full_disk_leaves_nothing(self):
        path = self.path("out.safetensors")
        # 37 rows of 2 KiB do not fit into a file of 16 KiB: writing fails half-way. Launchers need larger files.
        script = f"export PMIX_MCA_gds=hash; ulimit -f 16; trap '' XFSZ; exec {' '.join(harness.command(0, 'run', '--tokens', 37, '--output', path))}"
        result = harness.subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("out.safetensors", result.stderr)
        self.assertEqual(self.files(), [])


class Input(CliTest):
    def setUp(self):
        super().setUp()
        generator = random.Random(7)
        # Values with 8 significant bits are the same in F32, F16 and BF16.
        self.values = [generator.randrange(-255, 256) / 64 for _ in range(5 * HIDDEN)]

    def hidden_states(self, dtype):
        if dtype == "F32":
            data = struct.pack(f"<{len(self.values)}f", *self.values)
        elif dtype == "F16":
            data = struct.pack(f"<{len(self.values)}e", *self.values)
        else:
            data = b"".join(struct.pack("<f", v)[2:] for v in self.values)
        return (dtype, [5, HIDDEN], data)

    def test_dtypes_give_the_same(self):
        outputs = []
        for dtype in ("F32", "F16", "BF16"):
            # An odd number of bytes in front: the tensor is unaligned.
            write_safetensors(self.path("in"), {"a": ("U8", [3], b"abc"), "hidden_states": self.hidden_states(dtype)})
            self.run_fine(2, "run", "--verify", "--reproducible", "--compute-dtype", "f32", "--input", self.path("in"),
                          "--output", self.path("out"))
            with open(self.path("out"), "rb") as file:
                outputs.append(file.read())
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(outputs[0], outputs[2])

    def test_nan_row_stays_in_its_row(self):
        clean = list(self.values)
        write_safetensors(self.path("clean"), {"hidden_states": self.hidden_states("F32")})
        self.values[2 * HIDDEN + 5] = math.nan
        write_safetensors(self.path("nan"), {"hidden_states": self.hidden_states("F32")})
        self.values = clean
        results = []
        for name in ("clean", "nan"):
            self.run_fine(2, "run", "--reproducible", "--input", self.path(name), "--output", self.path("out"))
            results.append(read_safetensors(self.path("out"))["layers.0.moe_output"][2])
        for row in (0, 1, 3, 4):
            part = slice(row * HIDDEN, (row + 1) * HIDDEN)
            self.assertEqual(results[0][part], results[1][part])
        self.assertTrue(all(math.isnan(v) for v in results[1][2 * HIDDEN:3 * HIDDEN]))

    def test_wrong_result_is_exit_1(self):
        """Products of two such values exceed f32 and not the f64 of the reference."""
        self.values = [1e25 * v for v in self.values]
        write_safetensors(self.path("in"), {"hidden_states": self.hidden_states("F32")})
        run = ("run", "--compute-dtype", "f32", "--input", self.path("in"), "--json", self.path("out.json"))
        self.run_fine(2, *run)
        result = harness.epmoe(2, *run, "--verify")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("verify: FAILED", result.stdout)
        with open(self.path("out.json"), encoding="utf-8") as file:
            self.assertFalse(json.load(file)["ok"])

    def test_bad_input(self):
        path = self.path("in")
        run = ("run", "--input", path)
        self.refused(2, run, "in")
        write_safetensors(path, {"other": self.hidden_states("F32")})
        self.refused(2, run, "hidden_states")
        write_safetensors(path, {"hidden_states": ("F32", [5, 3], bytes(60))})
        self.refused(2, run, "[5, 3]", "[tokens, 512] wanted")
        write_safetensors(path, {"hidden_states": ("I32", [1, HIDDEN], bytes(4 * HIDDEN))})
        self.refused(2, run, "I32", "F32, F16 or BF16 wanted")
        write_safetensors(path, {"hidden_states": self.hidden_states("F32")})
        self.refused(2, run + ("--tokens", 5), "--tokens and --input")
        self.refused(2, run + ("--tokens-per-rank", "1,1"), "sum is 2", "5 tokens wanted")
        self.run_fine(2, *run, "--tokens-per-rank", "5,0")


class Json(CliTest):
    def test_file_has_what_is_printed(self):
        path = self.path("run.json")
        out = self.run_fine(3, "run", "--verify", "--tokens", 30, "--json", path).stdout
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        self.assertIn("verify: ok", out)
        self.assertEqual(self.files(), ["run.json"])
        self.assertEqual((found["ranks"], found["ok"], sum(found["tokens_per_rank"])), (3, True, 30))
        layer = found["layers"][0]
        self.assertEqual(sum(layer["tokens_per_expert"]), 30 * TOP_K)
        self.assertEqual(sum(layer["entries_per_rank"]), 30 * TOP_K)
        for phase in ("route", "quantize", "dispatch", "permute", "gemm1", "act", "gemm2", "combine", "wait", "shared"):
            spread = layer["phase_s"][phase]
            self.assertLessEqual(spread["min"], spread["max"])
            self.assertEqual(len(spread["per_rank"]), 3)
        self.assertGreater(layer["phase_s"]["gemm1"]["min"], 0.0)
        for rank in range(3):
            sent = sum(layer["dispatch_bytes"][rank]) + sum(layer["combine_bytes"][rank])
            self.assertEqual(sent, layer["bytes_sent_per_rank"][rank])
            self.assertGreater(sent, 0)

    def test_one_rank_sends_nothing(self):
        self.assertEqual(self.run_json(1, "run", "--tokens", 30)["layers"][0]["bytes_sent_per_rank"], [0])

    def test_stats(self):
        self.assertIn("bytes from rank", self.run_fine(2, "run", "--tokens", 9, "--stats").stdout)


if __name__ == "__main__":
    harness.main()
