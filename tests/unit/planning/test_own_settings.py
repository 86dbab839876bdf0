"""Settings of an engine's own that change its pools: read from commands, counted, refused where the engine would."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from draftproof.configs.registry import dialect
from draftproof.configs.speculation import Speculation
from draftproof.core.errors import DraftproofError
from draftproof.planning.assemble import Wish, assemble
from draftproof.planning.engines import RULES, memory_rules
from draftproof.planning.memory import plan_memory
from draftproof.planning.paging import Split
from draftproof.planning.setup import Setup
from support.plans import GIB, HEAD, QWEN_35_9B, TARGET, setup_of, view_of

GEMMA_2 = TARGET | {"model_type": "gemma2", "sliding_window": 128, "num_hidden_layers": 8, "head_dim": 128}
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
    "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "torch_dtype": "bfloat16",
}  # fmt: skip
NANO = {
    "model_type": "nemotron_h", "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8,
    "head_dim": 64, "intermediate_size": 512, "vocab_size": 1000, "num_hidden_layers": 4,
    "hybrid_override_pattern": "M-M*", "mamba_num_heads": 16, "mamba_head_dim": 64, "ssm_state_size": 128,
    "n_groups": 8, "conv_kernel": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
LAYER = 8 * 64 * 2 * 2
"""Bytes of a token in one layer of GPT_OSS."""
WINDOWS = 12
"""Layers of GPT_OSS with a window, and without."""


def commanded(text: str, engine: str, directory: Path, target: dict[str, Any], gib: int = 80) -> Setup:
    deployment = dialect(engine).parse(text, None, None).deployment
    return assemble(view_of(directory, target), deployment, Wish(memory=gib * GIB), lambda name: None)  # type: ignore[arg-type,return-value]


def vllm(flags: str, directory: Path, target: dict[str, Any]) -> Setup:
    return commanded(f"vllm serve T {flags}", "vllm", directory, target)


def sglang(flags: str, directory: Path, target: dict[str, Any]) -> Setup:
    return commanded(f"python -m sglang.launch_server --model-path T {flags}", "sglang", directory, target)


@pytest.mark.parametrize(
    ("flags", "tokens", "blocks"),
    [
        # A state of Qwen3.5 9B takes 2,146,304 bytes: 524 tokens of 4,096, in multiples of 64 with FlashInfer's kernel,
        # else of 16. In bfloat16 it takes 1,097,728.
        ("", 576, 3),
        ("--gdn-prefill-backend flashinfer", 576, 3),
        ("--gdn-prefill-backend triton", 528, 2),
        ("--gdn-prefill-backend cutedsl", 528, 2),
        ("--no-enable-prefix-caching", 528, 1),
        ("--no-enable-prefix-caching --gdn-prefill-backend flashinfer", 528, 1),
        ("--mamba-ssm-cache-dtype bfloat16", 320, 3),
        ("--mamba-ssm-cache-dtype auto --mamba-cache-dtype auto", 576, 3),
    ],
)
def test_blocks_of_vllm_follow_kernel_type_and_prefix_cache(
    flags: str, tokens: int, blocks: int, tmp_path: Path
) -> None:
    pool = plan_memory(vllm(flags, tmp_path, QWEN_35_9B)).pool
    assert {group.page_tokens for group in pool.groups} == {tokens}
    assert {group.fixed for group in pool.groups} == {None, blocks}


def test_inputs_of_convolutions_have_a_type_of_their_own_in_vllm(tmp_path: Path) -> None:
    def tokens(flags: str) -> int:
        [size] = {group.page_tokens for group in plan_memory(vllm(flags, tmp_path, QWEN_35_9B)).pool.groups}
        return size

    triton = "--gdn-prefill-backend triton --mamba-ssm-cache-dtype bfloat16"
    assert tokens(f"{triton} --mamba-cache-dtype float32") == 16 * -(
        -(32 * 128 * 128 * 2 + 8192 * 3 * 4) // (16 * 4096)
    )
    assert tokens(triton) == 16 * -(-(32 * 128 * 128 * 2 + 8192 * 3 * 2) // (16 * 4096))


@pytest.mark.parametrize(
    ("flags", "batches"),
    [("", 2), ("--no-async-scheduling", 1), ("-pp 2", 3), ("-pp 2 --no-async-scheduling", 2)],
)
def test_windows_of_vllm_hold_every_batch_on_its_way(flags: str, batches: int, tmp_path: Path) -> None:
    """`max_in_flight_tokens`: a batch per stage, and one more with asynchronous scheduling."""
    pool = plan_memory(vllm(f"--max-num-batched-tokens 1024 {flags}", tmp_path, GEMMA_2)).pool
    [windowed] = [group for group in pool.groups if group.window is not None]
    assert windowed.pages(100_000, pool.in_flight) == -(-(127 + 1024 * batches) // 16) + 1


@pytest.mark.parametrize(("flags", "ratio"), [("", 0.8), ("--swa-full-tokens-ratio 0.25", 0.25)])
def test_the_ratio_of_windows_in_sglang(flags: str, ratio: float, tmp_path: Path) -> None:
    setup = sglang(flags, tmp_path, GPT_OSS)
    [group] = plan_memory(setup).pool.groups
    assert group.page_bytes == WINDOWS * LAYER + round(ratio * WINDOWS * LAYER)
    assert group.split == Split(ratio, 128 + 128 + 1 + 1)
    assert any(f"--swa-full-tokens-ratio {ratio:g} is taken" in line for line in setup.rules.warnings(setup))


@pytest.mark.parametrize(
    ("flags", "tokens"),
    [
        # What `compute_swa_request_cap` of 0.5.23 gave, run with these settings.
        ("", 20_513),
        ("--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
         "--speculative-num-draft-tokens 4", 26_769),
        ("--disable-overlap-schedule --speculative-algorithm EAGLE --speculative-num-steps 3 "
         "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4", 18_577),
    ],
)  # fmt: skip
def test_without_prefixes_windows_of_limited_requests_lie_aside(
    flags: str, tokens: int, tmp_path: Path
) -> None:
    base = f"--disable-radix-cache --chunked-prefill-size 8192 {flags}"
    deployment = (
        dialect("sglang")
        .parse(f"python -m sglang.launch_server --model-path T --max-running-requests 16 {base}", None, None)
        .deployment
    )
    said = deployment.speculation
    setup = setup_of(
        tmp_path, "sglang", target=GPT_OSS, wish=Wish(memory=80 * GIB), max_num_seqs=16,
        max_num_batched_tokens=8192, prefix_caching=False, rest=deployment.rest, speculation=said,
        **({"drafter": HEAD} if said.method != "none" else {}),
    )  # fmt: skip
    pool = plan_memory(setup).pool
    assert pool.aside == tokens * WINDOWS * LAYER
    assert pool.groups[0].split is None
    assert pool.bytes_for(16, 1000) == pool.aside + 16 * pool.request_bytes(1000)
    assert pool.num_requests(pool.aside + 3 * pool.request_bytes(1000), 1000) == 3
    unlimited = setup_of(tmp_path, "sglang", target=GPT_OSS, wish=Wish(memory=80 * GIB), prefix_caching=False)
    assert plan_memory(unlimited).pool.aside == 0, "the ratio holds where nobody limits requests"


def test_a_configuration_can_ask_sglang_for_two_pools(tmp_path: Path) -> None:
    """`is_hybrid_swa_model`: by its architecture, or by is_hybrid_swa of its configuration."""
    whole = plan_memory(sglang("", tmp_path, GEMMA_2)).pool
    setup = sglang("", tmp_path, GEMMA_2 | {"is_hybrid_swa": True})
    split = plan_memory(setup).pool
    assert whole.groups[0].split is None
    assert split.groups[0].split == Split(0.8, 128 + 128 + 1 + 1)
    assert split.token_bytes == math.ceil(whole.token_bytes * (0.5 + 0.8 * 0.5))
    assert not any("keep every token" in line for line in setup.rules.warnings(setup))


def test_a_draft_layer_with_a_window_counts_as_one_in_sglang(tmp_path: Path) -> None:
    eagle = Speculation(method="eagle", depth=3)
    windowed = GPT_OSS | {
        "num_hidden_layers": 1,
        "architectures": ["GptOssEagle"],
        "layer_types": ["sliding_attention"],
    }
    whole = windowed | {"layer_types": ["full_attention"]}

    def cell(drafter: dict[str, Any]) -> float:
        return plan_memory(
            setup_of(tmp_path, "sglang", eagle, drafter=drafter, target=GPT_OSS)
        ).pool.token_bytes

    assert cell(whole) == (WINDOWS + 1) * LAYER + round(0.8 * WINDOWS * LAYER)
    assert cell(windowed) == WINDOWS * LAYER + -(-8 * (WINDOWS + 1) * LAYER // 10)


def test_sglang_counts_prediction_layers_that_the_configuration_names_alone(tmp_path: Path) -> None:
    mtp = Speculation(method="mtp", depth=1)

    def cell(changes: dict[str, Any]) -> tuple[float, bool]:
        setup = setup_of(tmp_path, "sglang", mtp, target=QWEN_35_9B | changes, wish=Wish(memory=80 * GIB))
        told = any("its pool is larger" in line for line in setup.rules.warnings(setup))
        return plan_memory(setup).pool.token_bytes / (4 * 256 * 2 * 2), told

    assert cell({"mtp_num_hidden_layers": 1}) == (8, True)
    assert cell({"num_nextn_predict_layers": 1}) == (9, False)


STATE = 16 * 64 * 128 * 4 + (1024 + 2 * 8 * 128) * 3 * 2
"""Bytes of a state of NANO's layers with Mamba-2, of which there are two."""


@pytest.mark.parametrize(
    ("flags", "share", "slots"),
    [
        ("", 0.9 / 1.9, 5),
        ("--mamba-full-memory-ratio 0.25", 0.2, 5),
        ("--disable-overlap-schedule", 0.9 / 1.9, 3),
        ("--disable-overlap-schedule --page-size 64", 0.9 / 1.9, 4),
        ("--mamba-radix-cache-strategy no_buffer", 0.9 / 1.9, 3),
        ("--mamba-radix-cache-strategy extra_buffer_lazy", 0.9 / 1.9, 4),
        ("--disable-radix-cache", 0.9 / 1.9, 1),
    ],
)
def test_the_part_of_states_in_sglang(flags: str, share: float, slots: int, tmp_path: Path) -> None:
    """`_calculate_mamba_ratio` and `get_mamba_tracking_slots` of 0.5.23."""
    pool = plan_memory(sglang(flags, tmp_path, NANO)).pool
    assert pool.states is not None
    assert pool.states.share == pytest.approx(share)
    assert pool.state_bytes == 2 * STATE * slots


def test_states_of_a_said_number_lie_aside(tmp_path: Path) -> None:
    """`_handle_max_mamba_cache`: one more than said, for padding; five slots a request bound how many run."""
    pool = plan_memory(sglang("--max-mamba-cache-size 100", tmp_path, NANO)).pool
    assert (pool.states, pool.state_bytes) == (None, 0)
    assert pool.aside == 2 * STATE * 101
    assert pool.num_requests(1 << 50, 1000) == 20
    limited = plan_memory(sglang("--disable-radix-cache --max-running-requests 8", tmp_path, NANO)).pool
    assert limited.aside == 2 * STATE * 9
    half = plan_memory(sglang("--mamba-ssm-dtype bfloat16 --max-mamba-cache-size 100", tmp_path, NANO)).pool
    assert half.aside == 2 * (STATE - 16 * 64 * 128 * 2) * 101


def test_types_of_states_in_tensorrt_llm(tmp_path: Path) -> None:
    """`resolve_ssm_cache_dtype` reads mamba_ssm_cache_dtype of the configuration, not mamba_ssm_dtype."""
    inputs, elements = (1024 + 2 * 8 * 128) * 3 * 2, 16 * 64 * 128

    def size(changes: dict[str, Any], yaml: str = "max_seq_len: 1000") -> int:
        return (
            plan_memory(commanded(f"{yaml}\n", "trtllm", tmp_path, NANO | changes)).pool.state_bytes // 2
            - inputs
        )

    assert size({"mamba_ssm_dtype": "float32", "mamba_ssm_cache_dtype": "bfloat16"}) == 2 * elements
    assert size({"mamba_ssm_cache_dtype": "float32"}) == 4 * elements
    told = "kv_cache_config:\n  mamba_ssm_cache_dtype: float16"
    assert size({"mamba_ssm_cache_dtype": "float32"}, told) == 2 * elements


def test_tensorrt_llm_runs_2048_requests_and_no_more_rows_than_a_pass(tmp_path: Path) -> None:
    plain = setup_of(tmp_path, "trtllm")
    assert (plain.max_num_seqs, plain.verify_rows) == (2048, 2048)
    drafting = setup_of(tmp_path, "trtllm", Speculation(method="ngram", depth=7))
    assert drafting.verify_rows == 8192 < 2048 * 8
    [logits] = [item for item in plan_memory(drafting).items if item.name == "logits to verify"]
    assert logits.num_bytes == 8192 * 128256 * 6
    assert "8192" in logits.why


@pytest.mark.parametrize(
    ("engine", "key"), [(engine, key) for engine in RULES for key in memory_rules(engine).reads]
)
def test_values_that_an_engine_would_not_take_are_refused(engine: str, key: str, tmp_path: Path) -> None:
    read = memory_rules(engine).reads[key]
    if read.__name__ == "switch":
        pytest.skip("a switch takes no value")
    wrong: Any = {"mamba_ssm_cache_dtype": "wide"} if key == "kv_cache_config" else "-wide-"
    with pytest.raises(DraftproofError, match=rf"DP001 {key}"):
        setup_of(tmp_path, engine, extras={key: wrong})
