"""Caches of models with running states, and windows in a pool of their own, as vLLM and SGLang divide them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftproof.configs.speculation import Speculation
from draftproof.planning.assemble import Wish
from draftproof.planning.engines import RULES, sglang, vllm
from draftproof.planning.engines.layers import quantised_index_bytes, target_layers
from draftproof.planning.engines.vllm import Checkpoints, checkpoints, hybrid_block_tokens
from draftproof.planning.memory import plan_memory, smallest
from draftproof.planning.setup import Setup
from support.plans import GIB, HEAD, QWEN_35_9B, setup_of

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
LFM2 = {
    "model_type": "lfm2", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 8, "intermediate_size": 4608, "vocab_size": 65536, "conv_L_cache": 3,
    "layer_types": ["conv", "conv", "full_attention", "conv"], "torch_dtype": "bfloat16",
}  # fmt: skip
BAILING = {
    "model_type": "bailing_hybrid", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
    "head_dim": 128, "layer_group_size": 4, "kv_lora_rank": 128, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64,
    "v_head_dim": 64, "q_lora_rank": 64, "intermediate_size": 512, "vocab_size": 1000, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 64, "num_shared_experts": 1, "torch_dtype": "bfloat16",
    "linear_attn_config": {"head_dim": 128, "num_heads": 4, "short_conv_kernel_size": 4},
}  # fmt: skip
KIMI: dict[str, Any] = {
    "model_type": "kimi_linear", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
    "kv_lora_rank": 128, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 64, "vocab_size": 1000,
    "intermediate_size": 512, "moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_token": 2,
    "num_shared_experts": 1, "torch_dtype": "bfloat16",
    "linear_attn_config": {
        "full_attn_layers": [4], "head_dim": 128, "num_heads": 4, "short_conv_kernel_size": 4,
    },
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


NGRAM = Speculation(method="ngram", depth=5)
MTP = Speculation(method="mtp", depth=1)


@pytest.mark.parametrize(
    ("target", "said", "tokens", "blocks"),
    [
        # `_align_hybrid_block_size` of 0.33.0 by hand; what `MambaSpec.max_memory_usage_bytes` gave, run with these
        # shapes, over the size of a page: 3 and 8.
        (QWEN_35_9B, Speculation(), 576, 3),  # 2,146,304 bytes: 9 times 64 tokens of 4,096
        (QWEN_35_9B, NGRAM, 576, 8),  # 2,228,224 bytes
        (QWEN_35_27B, Speculation(), 832, 3),  # 3,207,168 bytes: 13 times 64
        (QWEN_35_9B | {"mtp_num_hidden_layers": 1}, MTP, 576, 4),
        (NANO_9B, Speculation(), 1312, 3),  # 5,316,608 bytes: 82 times 16 tokens of 4,096
        (NANO_9B, NGRAM, 1328, 8),  # 5,439,488 bytes
        (
            QWEN_35_9B | {"model_type": "olmo_hybrid"},
            Speculation(),
            272,
            2,
        ),  # 1,097,728 bytes; a kernel of its own
    ],
)
def test_a_request_of_vllm_has_blocks_of_states(
    target: dict[str, Any], said: Speculation, tokens: int, blocks: int, tmp_path: Path
) -> None:
    pool = plan_memory(planned(tmp_path, target, speculation=said)).pool
    states = [group for group in pool.groups if group.fixed is not None]
    assert {group.fixed for group in states} == {blocks}
    assert {group.page_tokens for group in pool.groups} == {tokens}
    assert pool.request_bytes(1000) == pool.unit * (
        len(states) * blocks + (len(pool.groups) - len(states)) * -(-1000 // tokens)
    )


def test_layers_of_equal_number_share_a_table(tmp_path: Path) -> None:
    pool = plan_memory(planned(tmp_path, QWEN_35_9B)).pool
    assert (pool.unit, len(pool.groups)) == (8 * 576 * 4096, 4), (
        "eight with attention, three times eight with states"
    )
    assert pool.request_bytes(100_000) == (174 + 9) * pool.unit
    assert pool.token_bytes == 8 * 4096


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, Checkpoints()),
        ({"gate_lower_bound": -5.0}, Checkpoints(blocks=1)),  # Kimi K3's: FlashKDA
    ],
)
def test_flashkda_leaves_a_state_where_the_gate_has_a_bound(
    changes: dict[str, Any], left: Checkpoints, tmp_path: Path
) -> None:
    target = KIMI | {"linear_attn_config": KIMI["linear_attn_config"] | changes}
    setup = planned(tmp_path, target)
    assert checkpoints(setup) == left
    said = any("--kda-prefill-backend" in text for text in setup.rules.warnings(setup))
    assert said is bool(left.blocks)


def test_without_attention_a_request_costs_the_same_at_any_length(tmp_path: Path) -> None:
    pool = plan_memory(planned(tmp_path, MAMBA)).pool
    assert pool.request_bytes(10) == pool.request_bytes(100_000) == 64 * (5120 * 16 + 5120 * 3) * 2
    assert pool.token_bytes == 0


GRANITE = {
    "model_type": "granitemoehybrid", "hidden_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 12,
    "num_key_value_heads": 4, "intermediate_size": 512, "shared_intermediate_size": 1024, "vocab_size": 100352,
    "num_local_experts": 62, "num_experts_per_tok": 6, "layer_types": ["mamba", "mamba", "mamba", "attention"],
    "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4,
    "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "target", "sizes"),
    [
        # Bytes of one state on 1, 2, 4 and 8 devices: what `MambaStateShapeCalculator` of vLLM 0.33.0 and
        # `Mamba2StateShape` of SGLang 0.5.23 gave, run with these shapes. One group is on every device.
        ("vllm", GRANITE, (806_400, 403_968, 202_752, 102_144)),
        ("sglang", GRANITE, (1_592_832, 797_184, 399_360, 200_448)),
        ("vllm", NANO_9B, (5_316_608, 2_658_304, 1_329_152, 664_576)),
        ("vllm", QWEN_35_9B, (2_146_304, 1_073_152, 536_576, 268_288)),
    ],
)
def test_devices_share_states_and_each_has_a_group(
    engine: str, target: dict[str, Any], sizes: tuple[int, ...], tmp_path: Path
) -> None:
    found = [state_on(planned(tmp_path, target, engine, tensor_parallel=devices)) for devices in (1, 2, 4, 8)]
    assert tuple(found) == sizes


def state_on(setup: Setup) -> int:
    """Bytes of one state on one device, as the engine's own rules size it."""
    sizes = {"vllm": vllm._state_bytes, "sglang": sglang._state_bytes}[setup.rules.name](setup)
    return max(layer.state_bytes for layer in target_layers(setup, sizes))


WHOLE, HALF = 5_316_608, 2_695_168
"""Of one state of Nemotron Nano 9B v2 in float32 and in bfloat16 (`Mamba2CacheParams.mamba_cache_per_req`)."""


@pytest.mark.parametrize(
    ("engine", "said", "expected"),
    [
        ("vllm", {}, WHOLE),
        ("vllm", {"mamba_ssm_cache_dtype": "bfloat16"}, HALF),
        ("vllm", {"mamba_ssm_dtype": "bfloat16"}, WHOLE),
        ("sglang", {}, WHOLE),
        ("sglang", {"mamba_ssm_cache_dtype": "bfloat16"}, WHOLE),
        ("sglang", {"mamba_ssm_dtype": "bfloat16"}, HALF),
    ],
)
def test_each_engine_reads_its_own_key_of_a_states_type(
    engine: str, said: dict[str, str], expected: int, tmp_path: Path
) -> None:
    assert state_on(planned(tmp_path, NANO_9B | said, engine)) == expected


def test_a_key_that_the_models_code_does_not_read_changes_nothing(tmp_path: Path) -> None:
    for said in ({"mamba_ssm_dtype": "float32"}, {"mamba_ssm_cache_dtype": "float32"}):
        assert state_on(planned(tmp_path, GRANITE | said)) == 806_400, "vLLM: like activations"
    assert state_on(planned(tmp_path, GRANITE | {"mamba_ssm_dtype": "bfloat16"}, "sglang")) == 1_592_832
    assert state_on(planned(tmp_path, QWEN_35_9B | {"mamba_ssm_dtype": None})) == 2 * (524_288 + 24_576)


@pytest.mark.parametrize(
    ("target", "said", "states"),
    [
        (QWEN_35_9B, Speculation(), 1),
        (QWEN_35_9B, NGRAM, 1),
        (QWEN_35_9B | {"mtp_num_hidden_layers": 1}, Speculation(method="mtp", depth=3), 4),
        (GRANITE, Speculation(method="eagle3", depth=3), 1),
    ],
)
def test_llamacpp_keeps_states_to_go_back_to(
    target: dict[str, Any], said: Speculation, states: int, tmp_path: Path
) -> None:
    """b11434: 1 + `n_rs_seq` rows of float32 for MTP and heads, where `llm_arch_supports_rs_rollback`."""
    drafter = HEAD | {"vocab_size": 100352} if said.method == "eagle3" else None
    pool = plan_memory(planned(tmp_path, target, "llamacpp", speculation=said, drafter=drafter)).pool
    whole = 24 * (524_288 + 24_576) if target["model_type"] == "qwen3_5_text" else 3 * (393_216 + 9_984)
    assert pool.state_bytes == 4 * states * whole


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


@pytest.mark.parametrize(
    ("target", "slots"),
    [
        # `_calculate_mamba_ratio`: three, and two to track prefixes for the models of `_MAMBA_EXTRA_BUFFER_ARCHS`.
        (QWEN_35_9B, 5),
        (NANO_9B, 5),
        (GRANITE, 5),
        (BAILING, 5),
        (LFM2, 3),
    ],
)
def test_sglang_has_slots_of_states(target: dict[str, Any], slots: int, tmp_path: Path) -> None:
    setup = planned(tmp_path, target, "sglang")
    one = sum(layer.state_bytes for layer in sglang._target_layers(setup))
    assert one > 0
    assert plan_memory(setup).pool.state_bytes == slots * one
    drafting = planned(tmp_path, target, "sglang", speculation=NGRAM)
    assert plan_memory(drafting).lookahead == 12, (
        "twice six verified tokens, with the overlap schedule or without"
    )


def test_sglang_counts_a_prediction_layer_as_one_that_holds_keys(tmp_path: Path) -> None:
    """`DefaultPoolConfigurator`: 32,768 bytes of eight layers, and an eighth of it."""
    target = QWEN_35_9B | {"num_nextn_predict_layers": 1}
    plain, drafting = (planned(tmp_path, target, "sglang", speculation=said) for said in (Speculation(), MTP))
    assert plan_memory(plain).pool.token_bytes == 32_768
    assert plan_memory(drafting).pool.token_bytes == 36_864
    assert not any("its pool is larger" in text for text in drafting.rules.warnings(drafting))


@pytest.mark.parametrize("model_type", ["granite_swa", "granitemoe_swa"])
def test_granites_windows_have_a_pool_of_their_own(model_type: str, tmp_path: Path) -> None:
    """`SWA_SINK_ARCHS`: of a layer with windows four fifths of the tokens."""
    target = GPT_OSS | {
        "model_type": model_type, "num_hidden_layers": 8, "num_local_experts": 8, "shared_intermediate_size": 512,
    }  # fmt: skip
    pool = plan_memory(planned(tmp_path, target, "sglang")).pool
    assert pool.groups[0].split is not None
    assert pool.token_bytes == 2 * 2048 + 9831, "two whole layers; 0.8 of six with windows, rounded up"


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
    assert found.memory is not None
    assert plan_memory(setup.on(found.memory)).requests(context) >= requests
    assert plan_memory(setup.on(int(found.memory * 0.998))).requests(context) < requests


def test_what_is_taken_for_granted_is_said(tmp_path: Path) -> None:
    for target, word in ((GPT_OSS, "--swa-full-tokens-ratio"), (QWEN_35_9B, "--mamba-full-memory-ratio")):
        setup = planned(tmp_path, target, "sglang")
        assert any(word in warning for warning in setup.rules.warnings(setup))
    for target, words in (
        (QWEN_35_9B, ("prefix-caching", "--gdn-prefill-backend")),
        (NANO_9B, ("prefix-caching",)),
    ):
        hybrid = planned(tmp_path, target)
        said = " ".join(hybrid.rules.warnings(hybrid))
        assert [word for word in ("prefix-caching", "--gdn-prefill-backend") if word in said] == list(words)
