"""`epmoe run MODEL_DIR` and `epmoe synth`: golden data of Hugging Face's code, bytes read, broken checkpoints."""
import glob
import json
import math
import os
import shutil
import struct

import harness
from harness import CliTest, read_safetensors

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")


def golden_cases():
    return sorted(os.path.dirname(path) for path in glob.glob(os.path.join(DATA, "*", "golden.json")))


def read_header(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return {name: info for name, info in json.loads(file.read(size)).items() if name != "__metadata__"}


def relative_error(found, wanted):
    difference = math.fsum((a - b) ** 2 for a, b in zip(found, wanted))
    return math.sqrt(difference / math.fsum(b * b for b in wanted))


class Golden(CliTest):
    def test_every_case_on_three_ranks(self):
        cases = golden_cases()
        self.assertGreaterEqual(len(cases), 6)
        for case in cases:
            with self.subTest(case=os.path.basename(case)):
                golden = os.path.join(case, "golden.safetensors")
                with open(os.path.join(case, "golden.json"), encoding="utf-8") as file:
                    layer = json.load(file)["layer"]
                self.run_fine(3, "run", case, "--layers", layer, "--input", golden, "--output", self.path("out"))
                found, wanted = read_safetensors(self.path("out")), read_safetensors(golden)
                self.assertEqual(found[f"layers.{layer}.topk_ids"], wanted["topk_ids"])
                error = relative_error(found[f"layers.{layer}.moe_output"][2], wanted["moe_output"][2])
                self.assertLessEqual(error, 1e-5 if case.endswith("_f32") else 1e-2)


class BytesRead(CliTest):
    def test_each_rank_reads_its_own_experts(self):
        case = os.path.join(DATA, "mixtral_f32")
        experts, shared = 0, 0
        for name, info in read_header(os.path.join(case, "model.safetensors")).items():
            size = info["data_offsets"][1] - info["data_offsets"][0]
            if ".experts." in name:
                experts += size
            elif ".gate." in name:
                shared += size
        self.assertGreater(experts, 0)
        for ranks in (1, 2, 4):
            layer = self.run_json(ranks, "run", case, "--tokens", 5, "--verify")["layers"][0]
            # 8 experts: 8 / ranks each, and the router on every rank. --verify reads more and is not counted.
            self.assertEqual(layer["bytes_read_per_rank"], [experts // ranks + shared] * ranks)

    def test_fused_layout_too(self):
        case = os.path.join(DATA, "mixtral_fused_bf16")
        one = self.run_json(1, "run", case, "--tokens", 5)["layers"][0]["bytes_read_per_rank"]
        four = self.run_json(4, "run", case, "--tokens", 5)["layers"][0]["bytes_read_per_rank"]
        router = 8 * 96 * 2
        self.assertEqual(sum(four) - 4 * router, one[0] - router)
        self.assertEqual(len(set(four)), 1)


class Synth(CliTest):
    def test_makes_what_run_reads(self):
        path = self.path("model")
        self.run_fine(0, "synth", "qwen3-30b-a3b", path, "--scale", 0.01, "--seed", 3)
        header = {}
        for file in glob.glob(os.path.join(path, "*.safetensors")):
            header.update(read_header(file))
        expert_bytes = sum(info["data_offsets"][1] - info["data_offsets"][0] for name, info in header.items() if ".experts." in name)
        router_bytes = 8 * 2048 * 2  # at least top-k experts remain
        for ranks in (1, 3):
            found = self.run_json(ranks, "run", path, "--tokens", 6, "--verify")
            self.assertEqual((found["family"], found["layers"][0]["hidden"], found["layers"][0]["experts"]), ("qwen3_moe", 2048, 8))
            self.assertEqual(sum(found["layers"][0]["bytes_read_per_rank"]), expert_bytes + ranks * router_bytes)
        self.refused(0, ("synth", "qwen3-30b-a3b", path, "--scale", 0.01), "model")

    def test_refusals(self):
        path = self.path("model")
        self.refused(0, ("synth", "gpt-9", path), "gpt-9", "mixtral-8x7b")
        self.refused(0, ("synth", "olmoe-1b-7b", path, "--dtype", "int8"), "--dtype int8", "bf16")
        self.refused(0, ("synth", "olmoe-1b-7b", path, "--scale", "0"), "scale")
        self.refused(0, ("synth", "olmoe-1b-7b"), "DIR")
        self.refused(2, ("synth", "olmoe-1b-7b", path), "one rank")
        self.assertEqual(self.files(), [])


class Broken(CliTest):
    def copy(self, case):
        path = self.path("model")
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(os.path.join(DATA, case), path)
        return path

    def test_dense_layer(self):
        case = os.path.join(DATA, "qwen3_moe_sharded_bf16")
        self.refused(2, ("run", case, "--layers", "1,0"), "layer 0 is dense", "MoE layers are 1, 2")
        self.refused(2, ("run", case, "--layers", "7"), "layer 7 is not in the model", "MoE layers are 1, 2")

    def test_missing_shard(self):
        path = self.copy("qwen3_moe_sharded_bf16")
        os.remove(os.path.join(path, "model-00002-of-00003.safetensors"))
        self.refused(2, ("run", path), "model-00002-of-00003.safetensors")

    def test_model_type(self):
        path = self.copy("mixtral_f32")
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        config["model_type"] = "nonsense"
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.refused(2, ("run", path), "nonsense", "deepseek_v3", "mixtral")
        self.run_fine(2, "run", path, "--family", "mixtral", "--verify", "--tokens", 4)
        self.refused(2, ("run", path, "--family", "other"), "other", "mixtral")

    def test_no_config(self):
        path = self.copy("mixtral_f32")
        os.remove(os.path.join(path, "config.json"))
        self.refused(2, ("run", path), "config.json")

    def test_cut_short(self):
        path = self.copy("mixtral_f32")
        with open(os.path.join(path, "model.safetensors"), "r+b") as file:
            file.truncate(os.path.getsize(file.name) - 1)
        self.refused(2, ("run", path), "model.safetensors")

    def test_file_that_one_rank_alone_cannot_read(self):
        """Rank 1 starts in a directory where the same relative path has no tensors."""
        for name in ("a", "b"):
            os.mkdir(self.path(name))
            shutil.copytree(os.path.join(DATA, "mixtral_f32"), os.path.join(self.path(name), "model"))
        os.remove(os.path.join(self.path("b"), "model", "model.safetensors"))
        run = ("run", "model", "--tokens", "4")
        result = harness.two_ranks((self.path("a"), run), (self.path("b"), run))
        self.assertEqual(result.returncode, 2, result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.startswith("epmoe: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertIn("rank 1: ", lines[0])
        self.assertIn("model.safetensors", lines[0])


if __name__ == "__main__":
    harness.main()
