"""Caches of models with running states, and windows in a pool of their own, as vLLM and SGLang divide them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftproof.configs.speculation import Speculation
from draftproof.planning.assemble import Wish
from draftproof.planning.engines import RULES
from draftproof.planning.engines.layers import quantised_index_bytes, target_layers
from draftproof.planning.engines.vllm import hybrid_block_tokens
from draftproof.planning.memory import plan_memory, smallest
from draftproof.planning.setup import Setup
from support.plans import GIB, setup_of

QWEN_35_9B: dict[str, Any] = {
    "model_type": "qwen3_5_text", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 12288, "vocab_size": 248320,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
    "mamba_ssm_dtype": "float32", "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_35_27B = QWEN_35_9B | {
    "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 24, "linear_num_value_heads": 48,
    "intermediate_size": 17408,
}  # fmt: skip
NANO_9B = {
    "model_type": "nemotron_h", "hidden_size": 4480, "num_attention_heads": 40, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 15680, "vocab_size": 131072, "num_hidden_layers": 56,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", "mamba_num_heads": 128,
    "mamba_head_dim": 80, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
MAMBA = {
    "model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280,
    "intermediate_size": 5120, "state_size": 16, "time_step_rank": 160, "conv_kernel": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
    "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "torch_dtype": "bfloat16",
}  # fmt: skip
LONG = Wish(memory=80 * GIB)


def planned(tmp_path: Path, target: dict[str, Any], engine: str = "vllm", **changes: Any) -> Setup:
    return setup_of(tmp_path, engine, target=target, wish=LONG, **changes)


@pytest.mark.parametrize(
    ("target", "kv_dtype", "tokens", "padding"),
    [
        # "Setting attention block size to 528 tokens …", "Padding mamba page size by 0.76% …": vllm-project/vllm#37467;
        # 784 and 0.13%, 1056 and 0.76%, 1568: logs of servers with these models; 672: vllm-project/vllm#24280, when
        # the state was kept in bfloat16.
        (QWEN_35_9B, None, 528, 0.76),
        (QWEN_35_9B, "fp8", 1056, 0.76),
        (QWEN_35_27B, None, 784, 0.13),
        (QWEN_35_27B, "fp8", 1568, 0.13),
        (NANO_9B | {"mamba_ssm_cache_dtype": "bfloat16"}, None, 672, 2.13),
    ],
)
def test_blocks_of_vllm_grow_until_they_hold_a_state(
    target: dict[str, Any], kv_dtype: str | None, tokens: int, padding: float, tmp_path: Path
) -> None:
    setup = planned(tmp_path, target, kv_dtype=kv_dtype)
    layers = target_layers(setup)
    state = max(layer.state_bytes for layer in layers)
    of_token = max(layer.token_bytes for layer in layers)
    assert hybrid_block_tokens(setup, of_token, state) == tokens
    assert 100 * (tokens * of_token - state) / state == pytest.approx(padding, abs=0.006)


def test_a_request_has_blocks_of_states_and_one_per_draft_token(tmp_path: Path) -> None:
    plain = plan_memory(planned(tmp_path, QWEN_35_9B)).pool
    assert plain.unit == 8 * 528 * 4096, (
        "eight attention layers share a table; three groups of eight have states"
    )
    assert plain.request_bytes(1000) == (2 + 3 * 2) * plain.unit
    assert plain.request_bytes(100_000) == (-(-100_000 // 528) + 3 * 2) * plain.unit
    assert plain.token_bytes == 8 * 4096
    drafting = plan_memory(
        planned(tmp_path, QWEN_35_9B, speculation=Speculation(method="ngram", depth=5))
    ).pool
    assert drafting.request_bytes(1000) == (2 + 3 * (2 + 5)) * drafting.unit
    assert drafting.unit == 8 * 544 * 4096, "five more inputs of the convolution need larger blocks"


def test_without_attention_a_request_costs_the_same_at_any_length(tmp_path: Path) -> None:
    pool = plan_memory(planned(tmp_path, MAMBA)).pool
    assert pool.request_bytes(10) == pool.request_bytes(100_000) == 64 * (5120 * 16 + 5120 * 3) * 2
    assert pool.token_bytes == 0


def test_tensor_parallelism_divides_states(tmp_path: Path) -> None:
    one, four = planned(tmp_path, QWEN_35_9B), planned(tmp_path, QWEN_35_9B, tensor_parallel=4)
    states = [max(layer.state_bytes for layer in target_layers(setup)) for setup in (one, four)]
    assert states[0] == 2_146_304
    assert states[1] == states[0] // 4


def test_keys_of_indexers_are_kept_in_a_type_of_their_own(tmp_path: Path) -> None:
    sparse = {
        "model_type": "deepseek_v32", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 64, "q_lora_rank": 128,
        "index_n_heads": 4, "index_head_dim": 128, "intermediate_size": 512, "vocab_size": 1000,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    assert quantised_index_bytes(128) == 132
    for engine in ("vllm", "sglang"):
        assert plan_memory(planned(tmp_path, sparse, engine)).pool.token_bytes == 4 * (576 * 2 + 132)
    assert plan_memory(planned(tmp_path, sparse, "trtllm")).pool.token_bytes == 4 * (576 + 128) * 2


@pytest.mark.parametrize("context", [40, 200, 4000, 60_000])
def test_sglang_holds_windows_in_a_pool_of_their_own(context: int, tmp_path: Path) -> None:
    """Against its own division: as many tokens of the cell as fit, four fifths of them for layers with windows."""
    plan = plan_memory(planned(tmp_path, GPT_OSS, "sglang"))
    per_layer = 8 * 2 * 64 * 2
    full = plan.cache_bytes // (12 * per_layer + int(0.8 * 12 * per_layer + 0.999))
    held = min(context, 128 + 128 + 1 + 1)
    expected = min(full // context, int(0.8 * full) // held)
    assert plan.pool.num_requests(plan.cache_bytes, context) == pytest.approx(expected, abs=1, rel=1e-4)
    everything = plan_memory(
        planned(
            tmp_path, GPT_OSS | {"model_type": "gpt_oss", "layer_types": ["full_attention"] * 24}, "sglang"
        )
    )
    assert plan.request_bytes(60_000) < everything.request_bytes(60_000)


@pytest.mark.parametrize("draft", [0, 4])
@pytest.mark.parametrize("context", [100, 3000, 100_000])
def test_sglang_gives_states_a_part_of_the_cache(draft: int, context: int, tmp_path: Path) -> None:
    """Against its own division between states and keys: as many requests as the smaller part allows."""
    said = Speculation(method="ngram", depth=draft) if draft else Speculation()
    plan = plan_memory(planned(tmp_path, QWEN_35_9B, "sglang", speculation=said))
    state, verified = 24 * 2_146_304, draft + 1 if draft else 0
    budget = plan.cache_bytes * 0.9 / 1.9
    slots = int((budget - state * (1 + verified)) // (state * (1 + verified / 5)))
    tokens = plan.cache_bytes / 1.9 // (8 * 4096)
    reserved = plan.lookahead
    expected = min(slots // 5, tokens // (context + reserved))
    assert plan.requests(context) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("engine", [engine for engine in RULES if engine != "draftproof"])
@pytest.mark.parametrize("target", [QWEN_35_9B, NANO_9B, MAMBA, GPT_OSS])
@pytest.mark.parametrize(("context", "requests"), [(100, 1), (5000, 7)])
def test_the_smallest_works_for_hybrid_models_too(
    engine: str, target: dict[str, Any], context: int, requests: int, tmp_path: Path
) -> None:
    setup = planned(tmp_path, target, engine, max_num_seqs=8)
    found = smallest(setup, context, requests)
    if found.fraction is not None:
        assert plan_memory(replace(setup, fraction=found.fraction)).requests(context) >= requests
        assert plan_memory(replace(setup, fraction=found.fraction - 0.02)).requests(context) < requests
    else:
        assert setup.rules.fraction_covers == "whole"
        assert plan_memory(replace(setup, memory=found.memory)).requests(context) >= requests
        assert plan_memory(replace(setup, memory=found.memory - 2**21)).requests(context) < requests


def test_what_is_taken_for_granted_is_said(tmp_path: Path) -> None:
    for target, word in ((GPT_OSS, "--swa-full-tokens-ratio"), (QWEN_35_9B, "--mamba-full-memory-ratio")):
        setup = planned(tmp_path, target, "sglang")
        assert any(word in warning for warning in setup.rules.warnings(setup))
    hybrid = planned(tmp_path, QWEN_35_9B)
    assert any("prefix-caching" in warning for warning in hybrid.rules.warnings(hybrid))
