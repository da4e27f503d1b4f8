#!/usr/bin/env python3
"""Makes tests/data: tiny random MoE checkpoints with Hugging Face transformers, and what its code computes for them.

    pip install torch==2.13.0 && pip install transformers==4.57.6 safetensors numpy   # per-expert checkpoints
    python scripts/make_golden.py
    (another environment)            transformers==5.18.0                            # fused checkpoints
    python scripts/make_golden.py

The installed major version of transformers decides which cases are made; see tests/data/README.md.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy
import safetensors
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

MAJOR = int(transformers.__version__.split(".")[0])
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
ATTENTION = dict(num_attention_heads=2, num_key_value_heads=2, vocab_size=32, max_position_embeddings=64,
                 bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
MLA = dict(ATTENTION, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
           head_dim=8)


def qwen(experts, top_k, hidden, intermediate, **more):
    more = dict(dict(num_hidden_layers=1, intermediate_size=24, head_dim=hidden // 2, norm_topk_prob=True), **more)
    return dict(ATTENTION, num_experts=experts, num_experts_per_tok=top_k, hidden_size=hidden,
                moe_intermediate_size=intermediate, **more)


def deepseek(experts, top_k, hidden, intermediate, **more):
    return dict(MLA, n_routed_experts=experts, num_experts_per_tok=top_k, hidden_size=hidden,
                moe_intermediate_size=intermediate, intermediate_size=24, num_hidden_layers=2,
                first_k_dense_replace=1, **more)


# name -> transformers major, model_type, dtype, layer, settings
CASES = {
    "mixtral_f32": (4, "mixtral", "f32", 0, dict(
        ATTENTION, num_local_experts=8, num_experts_per_tok=2, hidden_size=96, intermediate_size=40,
        num_hidden_layers=1)),
    "mixtral_fused_bf16": (5, "mixtral", "bf16", 0, dict(
        ATTENTION, num_local_experts=8, num_experts_per_tok=2, hidden_size=96, intermediate_size=80,
        num_hidden_layers=1)),
    "qwen2_moe_f32": (4, "qwen2_moe", "f32", 1, qwen(
        8, 4, 96, 24, norm_topk_prob=False, shared_expert_intermediate_size=80, num_hidden_layers=2,
        decoder_sparse_step=2)),
    "qwen2_moe_bf16": (4, "qwen2_moe", "bf16", 0, qwen(
        60, 4, 96, 16, norm_topk_prob=False, shared_expert_intermediate_size=40, decoder_sparse_step=1)),
    "qwen3_moe_f32": (4, "qwen3_moe", "f32", 0, qwen(12, 6, 176, 16)),
    "qwen3_moe_f16": (4, "qwen3_moe", "f16", 0, qwen(8, 2, 96, 17)),
    "qwen3_moe_fused_f32": (5, "qwen3_moe", "f32", 0, qwen(12, 4, 96, 32)),
    "qwen3_moe_hidden2048_f32": (4, "qwen3_moe", "f32", 0, qwen(4, 2, 2048, 5)),
    # As saved, attention and all: three layers (dense, MoE, MoE) in shards with an index.
    "qwen3_moe_sharded_bf16": (4, "qwen3_moe", "bf16", 2, qwen(
        8, 2, 96, 20, num_hidden_layers=3, mlp_only_layers=[0], head_dim=8)),
    "olmoe_bf16": (4, "olmoe", "bf16", 0, dict(
        ATTENTION, num_experts=8, num_experts_per_tok=1, hidden_size=24, intermediate_size=352, num_hidden_layers=1,
        norm_topk_prob=False)),
    "deepseek_v2_greedy_f32": (4, "deepseek_v2", "f32", 1, deepseek(
        8, 2, 96, 40, topk_method="greedy", n_group=1, topk_group=1, n_shared_experts=2, routed_scaling_factor=1.0)),
    "deepseek_v2_groups_bf16": (4, "deepseek_v2", "bf16", 1, deepseek(
        12, 4, 176, 16, topk_method="group_limited_greedy", n_group=4, topk_group=2, n_shared_experts=1,
        routed_scaling_factor=16.0)),
    "deepseek_v3_f32": (4, "deepseek_v3", "f32", 1, deepseek(
        12, 4, 96, 32, n_group=3, topk_group=2, n_shared_experts=1, routed_scaling_factor=2.5)),
    "deepseek_v3_ungrouped_bf16": (4, "deepseek_v3", "bf16", 1, deepseek(
        60, 6, 40, 16, n_group=1, topk_group=1, n_shared_experts=1, routed_scaling_factor=2.827)),
}
TOKENS = {"qwen3_moe_hidden2048_f32": 9}
COMPLETE = {"qwen3_moe_sharded_bf16"}


def moe_block(model, layer):
    decoder = model.model.layers[layer]
    return decoder.block_sparse_moe if hasattr(decoder, "block_sparse_moe") else decoder.mlp


def fill(model, generator):
    """Weights of the size that keeps activations near 1, and logits spread by about 2."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                continue
            spread = parameter.shape[-1] ** -0.5
            if name.endswith("gate.weight"):
                spread *= 2.0
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float32) * spread
            parameter.copy_(values.to(parameter.dtype))
        for module in model.modules():
            if hasattr(module, "e_score_correction_bias"):  # releases keep it in f32
                bias = torch.randn(module.e_score_correction_bias.shape, generator=generator) * 0.1
                module.e_score_correction_bias = bias


def router_logits(block, x, model_type):
    """As the router does: in f32 for DeepSeek, else in the model's type."""
    weight = block.gate.weight
    if model_type.startswith("deepseek"):
        return F.linear(x.float(), weight.float())
    return F.linear(x, weight)


def selection_and_margin(block, logits, config, model_type):
    """Per token: the values the k best are taken from (-inf where the group is masked), and how close the nearest
    decision is. In the units of the logits for softmax, of biased scores for DeepSeek-V3."""
    logits = logits.double()
    experts, k = logits.shape[-1], config.num_experts_per_tok
    values = logits
    if model_type == "deepseek_v3":
        values = logits.sigmoid() + block.gate.e_score_correction_bias.double()
    margin = torch.full(values.shape[:1], torch.inf, dtype=torch.float64)

    def note(sorted_values, chosen):
        nonlocal margin
        gaps = sorted_values[:, :chosen] - sorted_values[:, 1:chosen + 1] if sorted_values.shape[1] > chosen else \
            sorted_values[:, :chosen - 1] - sorted_values[:, 1:chosen]
        if gaps.shape[1]:
            margin = torch.minimum(margin, gaps.nan_to_num(posinf=torch.inf).min(dim=1).values)

    grouped = model_type == "deepseek_v3" or getattr(config, "topk_method", "") == "group_limited_greedy"
    if grouped and config.n_group > 1:
        members = values.view(-1, config.n_group, experts // config.n_group)
        groups = members.topk(2, dim=-1).values.sum(-1) if model_type == "deepseek_v3" else members.max(-1).values
        note(groups.sort(descending=True).values, config.topk_group)
        kept = torch.zeros_like(groups).scatter(1, groups.topk(config.topk_group).indices, 1.0).bool()
        values = members.masked_fill(~kept.unsqueeze(-1), -torch.inf).reshape(-1, experts)
    best = values.sort(descending=True).values
    note(best, k)
    if model_type == "deepseek_v3":
        # Hugging Face masks with 0.0, we with -inf: only tokens on which the two agree.
        margin = torch.where(best[:, k - 1] > 1e-3, margin, 0.0)
    return values, margin


def choose_tokens(block, config, model_type, dtype, tokens, threshold, generator):
    """Random rows none of whose routing decisions is close."""
    x = torch.randn((4096 if config.hidden_size < 1000 else 256, config.hidden_size), generator=generator).to(dtype)
    _, margin = selection_and_margin(block, router_logits(block, x, model_type), config, model_type)
    rows = torch.nonzero(margin > threshold).flatten()[:tokens]
    assert len(rows) == tokens, f"only {len(rows)} rows without near ties"
    return x[rows].contiguous()


def run_block(block, x, config, model_type):
    """Output, logits, ids and weights as the block itself computed them."""
    seen = {}

    def gate_hook(_, __, output):
        seen["gate"] = output

    true_topk = torch.topk

    def topk(*args, **kwargs):
        result = true_topk(*args, **kwargs)
        seen["topk"] = result[1]
        return result

    handle = block.gate.register_forward_hook(gate_hook)
    torch.topk = topk  # these blocks keep their choice to themselves in 4.57
    try:
        output = block(x.unsqueeze(0))
    finally:
        torch.topk = true_topk
        handle.remove()
    output = (output[0] if isinstance(output, tuple) else output).reshape(x.shape)
    if MAJOR == 5:
        logits, weights, ids = seen["gate"]
    elif model_type.startswith("deepseek"):
        logits = router_logits(block, x, model_type)
        ids, weights = seen["gate"]
    else:
        logits, ids = seen["gate"], seen["topk"]
        weights = F.softmax(logits, dim=1, dtype=torch.float).gather(1, ids)
        if getattr(config, "norm_topk_prob", True):
            weights /= weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
    return output, logits, ids, weights


def strip(saved, target, layers):
    """config.json and the tensors of MoE layers, in one file."""
    tensors = {}
    for file in sorted(saved.glob("*.safetensors")):
        tensors.update(load_file(file))
    kept = {n: t for n, t in tensors.items()
            if any(n.startswith(f"model.layers.{l}.{part}.") for l in layers for part in ("mlp", "block_sparse_moe"))}
    save_file(kept, target / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(saved / "config.json", target)


def make(name, root, seed):
    _, model_type, dtype_name, layer, settings = CASES[name]
    dtype = DTYPES[dtype_name]
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(model_type, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager").eval()
    if MAJOR == 5:
        model.set_experts_implementation("eager")
    fill(model, generator)
    block = moe_block(model, layer)
    f32_router = dtype_name == "f32" or model_type.startswith("deepseek")
    threshold = (2e-4 if model_type == "deepseek_v3" else 1e-3) if f32_router else 0.08
    tokens = TOKENS.get(name, 37)
    with torch.no_grad():
        x = choose_tokens(block, config, model_type, dtype, tokens, threshold, generator)
        output, logits, ids, weights = run_block(block, x, config, model_type)
        selection, margin = selection_and_margin(block, logits, config, model_type)
    assert margin.min() > threshold / 2, "a near tie"
    # Some blocks leave their choice unsorted: descending order of what selected.
    order = selection.gather(1, ids).argsort(dim=1, descending=True)
    ids, weights = ids.gather(1, order), weights.gather(1, order)
    assert torch.equal(ids, selection.topk(config.num_experts_per_tok).indices)

    target = root / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    sparse = [l for l in range(config.num_hidden_layers)
              if hasattr(moe_block(model, l), "gate") and hasattr(moe_block(model, l), "experts")]
    with tempfile.TemporaryDirectory() as directory:
        saved = target if name in COMPLETE else Path(directory)
        options = {"save_original_format": False} if MAJOR == 5 else {}
        model.save_pretrained(saved, max_shard_size="100KB" if name in COMPLETE else "1GB", **options)
        if name in COMPLETE:
            (target / "generation_config.json").unlink(missing_ok=True)
        else:
            strip(saved, target, sparse)
    save_file({"hidden_states": x.float(), "router_logits": logits.float(), "topk_ids": ids.to(torch.int32),
               "topk_weights": weights.float(), "moe_output": output.float()}, target / "golden.safetensors")
    about = dict(model_type=model_type, dtype=dtype_name, layer=layer, moe_layers=sparse,
                 layout="fused" if MAJOR == 5 else "per_expert", complete=name in COMPLETE, tokens=tokens, seed=seed,
                 least_margin=float(f"{margin.min():.3g}"), f32_router=f32_router, weights_dtype=str(weights.dtype)[6:],
                 versions=dict(transformers=transformers.__version__, torch=torch.__version__,
                               safetensors=safetensors.__version__, numpy=numpy.__version__))
    (target / "golden.json").write_text(json.dumps(about, indent=2) + "\n")
    for file in target.iterdir():
        file.chmod(0o644)
    size = sum(f.stat().st_size for f in target.iterdir())
    chosen = len(torch.unique(ids))
    print(f"{name}: {size / 1024:.0f} KiB, {chosen} experts chosen, output rms {output.float().pow(2).mean().sqrt():.3f}, "
          f"margin {margin.min():.2g}, weights {weights.dtype}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "tests" / "data")
    parser.add_argument("cases", nargs="*", help="default: all that the installed transformers makes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    mine = [name for name, case in CASES.items() if case[0] == MAJOR]
    unknown = set(arguments.cases) - set(mine)
    if unknown:
        parser.error(f"transformers {transformers.__version__} does not make {', '.join(sorted(unknown))}; "
                     f"it makes {', '.join(mine)}")
    for name in arguments.cases or mine:
        make(name, arguments.out, seed=1000 + list(CASES).index(name))


if __name__ == "__main__":
    main()
