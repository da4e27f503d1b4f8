"""What `epmoe` refuses: exit 2 on all ranks, one line that says what was found and what is wanted."""
import json
import os
import shutil

import harness
from harness import CliTest, epmoe


class Flags(CliTest):
    def test_values_of_later_issues(self):
        for flag, value in (
            ("--strategy", "auto"), ("--strategy", "low_latency"), ("--strategy", "hierarchical"),
            ("--dispatch-dtype", "int8_g128"), ("--dispatch-dtype", "fp8"), ("--dispatch-dtype", "fp8_g128"),
            ("--combine-dtype", "int8"), ("--progress", "thread"), ("--micro-batches", "2"), ("--trace", "t.json"),
        ):
            with self.subTest(flag=flag, value=value):
                self.refused(0, ("run", flag, value), f"{flag} {value}: not built yet")

    def test_unknown_values_are_answered_with_the_known(self):
        for flag, known in (("--strategy", "alltoall"), ("--placement", "round_robin"), ("--compute-dtype", "int8"),
                            ("--dispatch-dtype", "f16"), ("--combine-dtype", "bf16"), ("--backend", "native"),
                            ("--progress", "poll"), ("--log-level", "debug")):
            with self.subTest(flag=flag):
                self.refused(0, ("run", flag, "nonsense"), f"{flag} nonsense", known)
        self.refused(0, ("run", "--isa", "nonsense"), "nonsense")

    def test_numbers(self):
        for flag, value, message in (
            ("--tokens", "-1", "0 or more"), ("--tokens", "many", "--tokens"), ("--repeat", "0", "1 or more"),
            ("--threads", "-1", "0 or more"), ("--chunk-size", "-1", "0 or more"), ("--pipeline", "0", "1 or more"),
            ("--micro-batches", "0", "1 or more"), ("--timeout", "0", "above 0"), ("--shared-threshold", "-1", "0 or more"),
            ("--tokens-per-rank", "3,-1", "0 or more"), ("--layers", "0,", "--layers 0,"), ("--layers", "x", "--layers x"),
            ("--threads", "100000", "1024 or less"), ("--tokens", "400000000000", "or less wanted"),
            ("--tokens-per-rank", "9223372036854775807", "or less wanted"),
            ("--layers", "9", "MoE layers are 0, 1, 2, 3"), ("--layers", "1,1", "twice"),
        ):
            with self.subTest(flag=flag, value=value):
                self.refused(0, ("run", f"{flag}={value}"), message)

    def test_flags_that_do_not_fit_together(self):
        self.refused(0, ("run", "--reproducible", "--combine-dtype", "bf16"), "--combine-dtype bf16")
        self.refused(0, ("run", "--family", "mixtral"), "MODEL_DIR")
        self.refused(0, ("run", "--expert-map", "x", "--placement", "linear"), "--expert-map and --placement")
        self.refused(2, ("run", "--tokens-per-rank", "1,2,3"), "3 counts found", "2 ranks wanted")
        self.refused(2, ("run", "--tokens-per-rank", "1,2", "--tokens", "4"), "sum is 3", "4 tokens wanted")
        self.refused(2, ("run", "--strategy", "local"), "local")

    def test_command_line(self):
        self.refused(0, (), "a command is wanted", "run")
        self.refused(0, ("dance",), "dance")
        self.refused(2, ("run", "--no-such-flag"), "--no-such-flag")
        self.refused(0, ("run", "a", "b"), "b")

    def test_under_mpirun_one_line_for_all_ranks(self):
        for ranks in (2, 4):
            line = self.refused(ranks, ("run", "--strategy", "hierarchical"), "not built yet")
            self.assertNotIn("rank ", line)


class Files(CliTest):
    def test_outputs_never_replace_what_is_read_or_is_no_file(self):
        path = self.path("x.safetensors")
        with open(path, "w", encoding="utf-8") as file:
            file.write("keep")
        model = self.path("model")
        shutil.copytree(os.path.join(os.path.dirname(__file__), "..", "data", "mixtral_f32"), model)
        weights = os.path.join(model, "model.safetensors")
        size = os.path.getsize(weights)
        for flag in ("--output", "--json"):
            self.refused(0, ("run", model, flag, weights), "would overwrite", weights)
            self.assertEqual(os.path.getsize(weights), size)
            self.refused(0, ("run", flag, "/dev/null"), "/dev/null", "regular file")
        self.refused(0, ("run", "--json", path, "--output", path), "both write")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "keep")

    def test_missing_checkpoint(self):
        self.refused(2, ("run", self.path("no_model")), "no_model")

    def test_expert_map(self):
        path = self.path("map.json")
        run = ("run", "--expert-map", path)
        self.refused(2, run, "No such file")
        for content, messages in (
            ("{", ("not JSON",)), ("3", ("a list of owner ranks",)), ('{"owner": [0]}', ("owner and logical",)),
            ("[0, 1]", ("2 owners found", "64 experts wanted")), ('[0, "a"]', ('owner[1]: "a" found',)),
            ("[-1]", ("owner[0]: -1 found",)), ('{"owner": [0, 0], "logical": [0]}', ("2 entries in owner, 1 in logical",)),
            (json.dumps([2] + [0] * 63), ("2",)), ('{"owner": [0], "logical": [0]}', ("1",)),
        ):
            with self.subTest(content=content[:40]):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                self.refused(2, run, *messages)


class OneRankAlone(CliTest):
    def test_different_command_lines_end_the_job(self):
        """A rank with other flags than the rest: no hang, exit 2, and the rank is named."""
        result = harness.two_ranks((".", ("run", "--tokens", "4")),
                                   (".", ("run", "--tokens", "4", "--strategy", "hierarchical")))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("epmoe: rank 1: --strategy hierarchical: not built yet", result.stderr)


if __name__ == "__main__":
    harness.main()
