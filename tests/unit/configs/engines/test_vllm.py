"""vLLM's words: documented examples without false alarm, its own order of deducing a method, spellings of the past."""

from __future__ import annotations

import json
from typing import Any

import pytest

from draftproof.configs.engines.account import said
from draftproof.configs.engines.base import NoteKind
from draftproof.configs.registry import dialect
from draftproof.configs.speculation import BatchRange, Deployment, ModelRef, Speculation
from draftproof.core.errors import DraftproofError
from support.judges import VLLM_REFUSES

VLLM = dialect("vllm")
DRAFT_MODEL = r"""vllm serve Qwen/Qwen3-4B-Thinking-2507 \
    --host 0.0.0.0 \
    --port 8000 \
    --seed 42 \
    -tp 1 \
    --max_model_len 2048 \
    --gpu_memory_utilization 0.8 \
    --speculative_config '{"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 5, "method": "draft_model"}'
"""
MTP = """vllm serve XiaomiMiMo/MiMo-7B-Base --tensor-parallel-size 1 \\
    --speculative_config '{"method": "mtp", "num_speculative_tokens": 1}'"""


def settings(text: str) -> dict[str, Any]:
    return said(VLLM.parse(text).deployment)


def effects(text: str) -> list[tuple[str, str, str | None]]:
    return [(remark.effect, remark.setting, remark.today) for remark in VLLM.parse(text).remarks]


def config(**keys: object) -> str:
    return json.dumps(keys)


def refused(text: str) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        VLLM.parse(text)
    assert caught.value.code == "DP111"
    return caught.value


def test_the_documented_draft_model() -> None:
    assert settings(DRAFT_MODEL) == {
        "target": "Qwen/Qwen3-4B-Thinking-2507",
        "speculation.method": "draft_model",
        "speculation.drafter": "Qwen/Qwen3-0.6B",
        "speculation.depth": 5,
        "tensor_parallel": 1,
        "max_model_len": 2048,
        "memory_fraction": 0.8,
        "rest": ("--host", "0.0.0.0", "--port", "8000", "--seed", "42"),
    }
    assert effects(DRAFT_MODEL) == []


def test_the_documented_mtp() -> None:
    assert settings(MTP) == {
        "target": "XiaomiMiMo/MiMo-7B-Base",
        "speculation.method": "mtp",
        "speculation.depth": 1,
        "tensor_parallel": 1,
    }
    assert effects(MTP) == []


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --spec-method ngram --spec-tokens 4 --speculative-config.prompt_lookup_max 3",
        "vllm serve m --speculative-config.method=ngram --speculative_config.num-speculative-tokens=4 "
        "--speculative-config.prompt_lookup_max 3",
        "vllm serve m -sc.method ngram -sc.num_speculative_tokens=4 -sc.prompt_lookup_max 3",
        "vllm serve m --speculative.method ngram --speculative.num_speculative_tokens=4 "
        "--speculative.prompt_lookup_max 3",
        """vllm serve m --speculative '{"method":"ngram","num-speculative-tokens":4,"prompt_lookup_max":3}'""",
        """/usr/bin/vllm serve m -sc '{"method":"ngram","num-speculative-tokens":4,"prompt_lookup_max":3}'""",
        """python3 -m vllm.entrypoints.openai.api_server --model m --speculative-config='{"method":"[ngram]",
        "num_speculative_tokens":4, "prompt_lookup_max":3}'""",
        json.dumps(["serve", "m", "-sc", '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":3}']),
        """{"model": "m", "speculative_config": {"method": "ngram", "num_speculative_tokens": "4",
        "prompt_lookup_max": 3}}""",
    ],
)  # fmt: skip
def test_many_ways_to_write_one_thing(text: str) -> None:
    assert settings(text) == {
        "target": "m",
        "speculation.method": "ngram",
        "speculation.depth": 4,
        "speculation.lookup.max_ngram": 3,
    }


@pytest.mark.parametrize(
    ("model", "method", "found", "effect"),
    [
        ("yuhuili/EAGLE-LLaMA3-Instruct-8B", None, "eagle", "inferred"),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", None, "eagle3", "inferred"),
        ("AngelSlim/Qwen3-8B_eagle3", "draft_model", "eagle3", "rewritten"),
        ("x/eagle-eagle3", "mtp", "eagle", "rewritten"),
        ("z-lab/Qwen3-8B-DFlash-b16", None, "dflash", "inferred"),
        ("deepseek-ai/dspark_qwen3_8b_block7", None, "dspark", "inferred"),
        ("x/Eagle3-head", "eagle", "eagle", None),
        ("Qwen/Qwen3-0.6B", None, "draft_model", "inferred"),
        ("Qwen/Qwen3-0.6B", "draft_model", "draft_model", None),
        ("ngram", None, "ngram", "inferred"),
        ("my_package.Proposer", None, "custom", "inferred"),
        ("Qwen/Qwen3-8B", "qwen3_next_mtp", "mtp", "deprecated"),
    ],
)
def test_the_method_that_vllm_ends_up_with(
    model: str, method: str | None, found: str, effect: str | None
) -> None:
    text = config(model=model, num_speculative_tokens=2, **({"method": method} if method else {}))
    assert settings(text)["speculation.method"] == found
    assert [name for name, *_ in effects(text)] == ([effect] if effect else [])


def test_parallel_drafting_has_methods_of_its_own() -> None:
    for method, neutral in (("draft_model", "pard"), ("eagle3", "p_eagle")):
        text = config(method=method, model="x", num_speculative_tokens=8, parallel_drafting=True)
        parsed = VLLM.parse(text).deployment
        assert parsed.speculation.method == neutral
        again = VLLM.parse(VLLM.render(parsed).artifacts[0].text).deployment
        assert again == parsed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vllm serve m --speculative-model d --num-speculative-tokens 5",
         [("removed", "--speculative-model", "--spec-model"), ("removed", "--num-speculative-tokens", "--spec-tokens"),
          ("inferred", "method", "draft_model")]),
        (config(method="ngram", num_speculative_tokens=3, disable_by_batch_size=8),
         [("removed", "disable_by_batch_size", "num_speculative_tokens_per_batch_size")]),
        (config(method="eagle", model="d", num_speculative_tokens=3, speculative_token_tree="[(0,)]"),
         [("removed", "speculative_token_tree", None)]),
        (config(method="medusa", model="d", num_speculative_tokens=3), [("removed", "method", None)]),
        (config(method="ngram", num_speculative_tokens=3, rejection_sample_method="strict"),
         [("removed", "rejection_sample_method", "standard")]),
        ("vllm serve --model m", [("deprecated", "--model", "vllm serve MODEL")]),
        ("vllm serve m --config serve.yaml", [("unread", "--config", None)]),
        ("vllm serve m --no-such-flag 3", [("stray", "--no-such-flag", None)]),
        ("vllm serve m --max-num-seqs 3 --max-num-seqs=4", [("ignored", "--max-num-seqs", None)]),
    ],
)  # fmt: skip
def test_spellings_of_the_past_are_named_with_todays(
    text: str, found: list[tuple[str, str, str | None]]
) -> None:
    assert effects(text) == found


def test_what_a_version_had_is_known_or_said_to_be_unknown() -> None:
    medusa = config(method="medusa", model="d", num_speculative_tokens=3)
    assert VLLM.parse(medusa, "0.32.0").remarks == ()
    deployment = VLLM.parse(medusa, "0.32.0").deployment
    assert VLLM.render(deployment, "0.32.0").artifacts
    assert not VLLM.render(deployment, "0.33.0").artifacts
    schedule = config(
        method="ngram", num_speculative_tokens=3, num_speculative_tokens_per_batch_size=[[1, 4, 3]]
    )
    assert [remark.effect for remark in VLLM.parse(schedule, "0.22.0").remarks] == ["unknown"]
    assert [remark.effect for remark in VLLM.parse(schedule, "0.20.1").remarks] == ["unknown"]
    assert [remark.effect for remark in VLLM.parse(schedule, "0.20.0").remarks] == ["removed"]
    assert VLLM.parse(schedule, "0.24.0").remarks == ()


def test_a_schedule_covers_every_batch_size() -> None:
    text = config(
        method="mtp", num_speculative_tokens=4, num_speculative_tokens_per_batch_size=[[9, 12, 0], [1, 4, 4]]
    )
    assert settings(text)["speculation.schedule"] == (
        BatchRange(low=1, high=8, depth=4),
        BatchRange(low=9, high=None, depth=0),
    )
    for wrong in (
        [],
        [[2, 4, 1]],
        [[1, 4, 1], [4, 8, 0]],
        [[1, 4]],
        [[3, 1, 1]],
        [[1, 2, -1]],
        "x",
        [["a", 1, 1]],
    ):
        refused(config(method="mtp", num_speculative_tokens=4, num_speculative_tokens_per_batch_size=wrong))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nothing"),
        ("   ", "nothing"),
        ("ls -l", "vllm serve"),
        ('{"method": "ngram", "num_speculative_tokens": 0}', "at least 1"),
        ('{"method": "ngram", "num_spec_tokens": 1}', "num_speculative_tokens"),
        ('{"method": "eagle4", "model": "x"}', "eagle"),
        ('{"num_speculative_tokens": 3}', "method"),
        ('{"method": "eagle3", "num_speculative_tokens": 3}', "model"),
        ('{"method": "ngram", "tensor_parallel_size": 2}', "draft_tensor_parallel_size"),
        ('{"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 2}', "prompt_lookup_max"),
        ('{"method": "ngram", "num-speculative-tokens": 5, "num_speculative_tokens": 2}', "each key once"),
        ('{"method": "eagle", "model": "x", "use_heterogeneous_vocab": true}', "draft_model"),
        ('{"method": "ngram", "num_speculative_tokens": true}', "whole number"),
        ("vllm serve m --spec-tokens 3 --speculative-config '{\"num_speculative_tokens\": 2}'", "--spec-tokens"),
        ("vllm serve m --speculative-config '{\"method\": }'", "JSON value"),
        ("vllm serve m n", "one model"),
        ("vllm serve m --model n", "one model"),
        ("docker run vllm/vllm-openai:v0.33.0 m --model n", "one model"),
        ("vllm serve m -sc.method ngram --speculative-config.num_speculative_tokens 4", "one spelling"),
        ("vllm serve m --gpu-memory-utilization 1.5", "fraction"),
        ("vllm serve m --max-model-len 1.5", "8k"),
        ("vllm serve m --max-num-seqs", "VALUE"),
        ("vllm serve m --speculative-config.method", "VALUE"),
    ],
)  # fmt: skip
def test_refusals_say_where_and_what(text: str, words: str) -> None:
    error = refused(text)
    assert "line 1, column" in error.field
    assert words in f"{error.expected} {error.remedy} {error.found}"


def test_human_numbers_and_switches() -> None:
    found = settings(
        "vllm serve m --max-model-len 8k --max-num-batched-tokens 8K --no-enable-prefix-caching --enforce-eager"
    )
    assert (found["max_model_len"], found["max_num_batched_tokens"]) == (8000, 8192)
    assert (found["prefix_caching"], found["enforce_eager"]) == (False, True)
    assert "max_model_len" not in settings("vllm serve m --max-model-len auto")


def test_flags_without_a_value_do_not_swallow_the_model() -> None:
    assert settings("vllm serve --trust-remote-code m --api-key a b --port 1") == {
        "target": "m",
        "speculation.method": "none",
        "rest": ("--trust-remote-code", "--api-key", "a", "b", "--port", "1"),
    }


def test_rejection_rules_that_change_the_text_come_back_to_vllm_only() -> None:
    text = config(
        method="ngram",
        num_speculative_tokens=3,
        rejection_sample_method="synthetic",
        synthetic_acceptance_length=2.5,
    )
    parsed = VLLM.parse(text).deployment
    assert parsed.speculation.verification == "lossy"
    assert VLLM.parse(VLLM.render(parsed).artifacts[0].text).deployment == parsed
    other = dialect("draftproof").render(parsed)
    assert {note.setting: note.kind for note in other.notes}["speculation.verification"] is NoteKind.DROPPED


SINCE_033 = {
    "method": "draft_model", "model": "small", "use_heterogeneous_vocab": True, "use_local_argmax_reduction": True,
}  # fmt: skip


@pytest.mark.parametrize("keys", [*VLLM_REFUSES, SINCE_033], ids=str)
def test_keys_that_vllm_refuses_together_are_told(keys: dict[str, Any]) -> None:
    text = config(**{"method": "ngram", "num_speculative_tokens": 3} | keys)
    refused = [setting for effect, setting, _ in effects(text) if effect == "refused"]
    assert len(refused) == 1
    assert refused[0] in keys


@pytest.mark.parametrize(
    "keys",
    [
        {"rejection_sample_method": "fly", "fly_window_size": 2},
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4},
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5, 0.5, 0.0]},
        {"method": "mtp", "index_share_for_mtp_iteration": True, "draft_lm_head_quantization": "fp8"},
        {"method": "dspark", "dspark_draft_topk": 8, "use_local_argmax_reduction": True,
         "enable_adaptive_verification": True},
        {"method": "dflash", "model": "d", "xpress_topc": 8},
        {"num_speculative_tokens": 200},
    ],
    ids=str,
)  # fmt: skip
def test_keys_that_it_takes_together_are_not(keys: dict[str, Any]) -> None:
    assert effects(config(**{"method": "ngram", "num_speculative_tokens": 3} | keys)) == []


def test_only_model_runner_v1_bounds_the_draft() -> None:
    for method, is_bounded in (("ngram", False), ("suffix", True)):
        speculation = Speculation(method=method, depth=200)  # type: ignore[arg-type]
        rendered = VLLM.render(Deployment(engine="elsewhere", speculation=speculation))
        assert (rendered.artifacts == ()) == is_bounded


def test_what_vllm_needs_and_nobody_says_is_impossible() -> None:
    for method, setting in (
        ("ngram", "depth"),
        ("mtp", "depth"),
        ("eagle3", "drafter"),
        ("predicted", "method"),
    ):
        rendered = VLLM.render(Deployment(engine="elsewhere", speculation=Speculation(method=method)))  # type: ignore[arg-type]
        assert rendered.artifacts == ()
        assert f"speculation.{setting}" in {
            note.setting for note in rendered.notes if note.kind is NoteKind.IMPOSSIBLE
        }


def test_a_path_that_vllm_would_take_for_another_method_is_impossible() -> None:
    speculation = Speculation(method="draft_model", depth=3, drafter=ModelRef(name="runs/no-eagle3-here"))
    rendered = VLLM.render(Deployment(engine="elsewhere", speculation=speculation))
    assert rendered.artifacts == ()
    assert "eagle3" in next(note.reason for note in rendered.notes if note.setting == "speculation.drafter")


def test_bounds_of_look_up_are_written_together() -> None:
    own = dialect("draftproof").parse('{"method": "ngram"}').deployment
    written = json.loads(VLLM.render(own).artifacts[0].text)
    assert written == {
        "method": "ngram",
        "num_speculative_tokens": 8,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 5,
    }


DOCKER = (
    "docker run --gpus all -p 8000:8000 --ipc=host vllm/vllm-openai:v0.32.0 --model m --max-num-seqs 8 "
    "--spec-method medusa --spec-model d --spec-tokens 3"
)


def test_an_image_names_the_version_and_comes_back() -> None:
    parsed = VLLM.parse(DOCKER)
    assert (parsed.deployment.version, parsed.remarks) == ("0.32.0", ())
    assert said(parsed.deployment)["max_num_seqs"] == 8
    written = VLLM.render(parsed.deployment, "0.32.0").artifacts[0].text
    assert written.startswith(
        "docker run --gpus all -p 8000:8000 --ipc=host vllm/vllm-openai:v0.32.0 --model=m"
    )
    assert VLLM.parse(written).deployment == parsed.deployment
    assert VLLM.parse(DOCKER, "0.33.0").remarks
    assert [remark.setting for remark in VLLM.parse("docker run ubuntu:24.04 --model m").remarks] == ["image"]
    refused("docker run lmsysorg/sglang:v0.5.23 --model m")


def test_the_older_entry_point_goes_by_its_flag() -> None:
    text = "python -m vllm.entrypoints.openai.api_server m --model n"
    assert settings(text)["target"] == "n"
    assert effects(text) == [("ignored", "arguments", None)]


@pytest.mark.parametrize("digit", ["٣", "３", "३"])
def test_digits_of_every_script_are_numbers_as_for_python(digit: str) -> None:
    assert settings(f"vllm serve m --spec-method ngram --spec-tokens {digit}")["speculation.depth"] == 3
    refused("vllm serve m --spec-method ngram --spec-tokens ³")


def test_only_vllm_serve_warns_of_the_model_flag() -> None:
    assert effects("python -m vllm.entrypoints.openai.api_server --model m") == []


def test_what_both_engines_do_by_themselves_is_not_written() -> None:
    text = "python -m sglang.launch_server --model-path m --max-running-requests 8"
    rendered = VLLM.render(dialect("sglang").parse(text).deployment)
    assert rendered.artifacts[0].text == "vllm serve m --max-num-seqs 8"


def test_a_hub_id_is_to_be_downloaded_for_our_own_engine() -> None:
    rendered = dialect("draftproof").render(VLLM.parse(DRAFT_MODEL).deployment)
    kinds = {note.setting: note for note in rendered.notes}
    for setting in ("target", "speculation.drafter"):
        assert kinds[setting].kind is NoteKind.CONVERTED
        assert "download" in kinds[setting].reason


@pytest.mark.parametrize(
    ("version", "effect"), [(None, "stray"), ("0.32.0", "stray"), ("0.33.0", "stray"), ("0.29.0", "unknown")]
)
def test_a_flag_is_missing_only_where_all_were_read(version: str | None, effect: str) -> None:
    [remark] = VLLM.parse("vllm serve m --max-mdoel-len 4", version).remarks
    assert remark.effect == effect
    assert "nearest is --max-model-len" in remark.reason


@pytest.mark.parametrize(
    "flag", ["-O3", "--max-num-seq 3", "--monokernel", "-cc.mode 3", "--watchdog-config {}"]
)
def test_flags_that_are_there_are_no_strays(flag: str) -> None:
    assert not {"stray", "unknown"} & {remark.effect for remark in VLLM.parse(f"vllm serve m {flag}").remarks}
