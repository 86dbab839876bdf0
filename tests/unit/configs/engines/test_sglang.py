"""SGLang: windows that count the root, adaptive slots, and what SGLang itself rewrites, ignores or refuses."""

from __future__ import annotations

import json

import pytest

from draftproof.configs.engines.base import Artifact, Note, NoteKind
from draftproof.configs.registry import dialect
from draftproof.configs.speculation import BatchRange, Deployment, ModelRef, Speculation, Tree
from draftproof.core.errors import DraftproofError

SGLANG = dialect("sglang")
DRAFT = ModelRef(name="d")


def parsed(flags: str, slots: str = "") -> tuple[Speculation, list[tuple[str, str]]]:
    found = SGLANG.parse(flags, read=lambda name: slots)
    return found.deployment.speculation, [(remark.effect, remark.setting) for remark in found.remarks]


def rendered(speculation: Speculation, engine: str = "vllm") -> tuple[tuple[Artifact, ...], dict[str, Note]]:
    found = SGLANG.render(Deployment(engine=engine, speculation=speculation))
    return found.artifacts, {note.setting: note for note in found.notes}


def test_a_chain_of_k_is_k_steps_and_a_window_of_k_plus_one() -> None:
    artifacts, notes = rendered(Speculation(method="draft_model", drafter=DRAFT, depth=4))
    assert "--speculative-num-steps 4" in artifacts[0].text
    assert "--speculative-num-draft-tokens 5" in artifacts[0].text
    assert notes["speculation.depth"].kind is NoteKind.CONVERTED


def test_top_k_4_under_the_overlap_scheduler_is_told_with_both_facts() -> None:
    flags = (
        "--speculative-algo EAGLE3 --speculative-draft-model-path d --speculative-num-steps 3 "
        "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16"
    )
    speculation, _ = parsed(flags)
    assert speculation.tree == Tree(depth=3, branching=4, num_nodes=15)
    remark = SGLANG.parse(flags).remarks[0]
    assert remark.effect == "unsettled"
    assert "documents" in remark.reason
    assert "no such check" in remark.reason
    assert parsed(flags + " --disable-overlap-schedule")[1] == []


@pytest.mark.parametrize(
    ("flags", "remarks"),
    [
        ("--speculative-algorithm NEXTN", []),
        ("--speculative-algorithm EAGLE", [("inferred", "--speculative-algorithm")]),
        ("--speculative-algorithm STANDALONE", [("rewritten", "--speculative-algorithm")]),
        ("--speculative-algorithm DFLASH", [("refused", "--speculative-algorithm")]),
        (
            "--speculative-algorithm NEXTN --speculative-use-rejection-sampling --speculative-accept-threshold-acc 0.9",
            [("refused", "--speculative-accept-threshold-acc")],
        ),
        (
            "--speculative-algorithm EAGLE3 --speculative-num-draft-tokens 4",
            [("refused", "--speculative-num-draft-tokens")],
        ),
        (
            "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 8",
            [("rewritten", "--speculative-num-draft-tokens")],
        ),
        ("--speculative-num-steps 3", [("ignored", "--speculative-num-steps")]),
        (
            "--speculative-algorithm NGRAM --speculative-draft-window-size 512",
            [("ignored", "--speculative-draft-window-size")],
        ),
        (
            "--speculative-algorithm NEXTN --speculative-draft-sink-size 4",
            [("refused", "--speculative-draft-sink-size")],
        ),
        (
            "--speculative-algorithm NEXTN --speculative-draft-sink-size 4 --speculative-draft-window-size 512",
            [],
        ),
        ("--cuda-graph-max-bs 8", [("removed", "--cuda-graph-max-bs")]),
        ("--disable-cuda-graph", [("deprecated", "--disable-cuda-graph")]),
        ("--speculative-ngram-branch-length 3", [("removed", "--speculative-ngram-branch-length")]),
    ],
)
def test_what_sglang_does_on_its_own_is_remarked(flags: str, remarks: list[tuple[str, str]]) -> None:
    assert parsed(flags)[1] == remarks


def test_a_schedule_becomes_slots_by_their_lower_bound_and_comes_back() -> None:
    schedule = (BatchRange(low=1, high=8, depth=4), BatchRange(low=9, high=None, depth=0))
    artifacts, notes = rendered(Speculation(method="eagle3", drafter=DRAFT, depth=4, schedule=schedule))
    slots = json.loads(artifacts[1].text)
    assert slots == {"1": {"candidate_steps": [4]}, "9": {"candidate_steps": [0]}}
    assert notes["speculation.schedule"].kind is NoteKind.CONVERTED
    assert parsed(artifacts[0].text, artifacts[1].text)[0].schedule == schedule


def test_a_schedule_for_a_draft_model_is_impossible_and_not_rendered() -> None:
    schedule = (BatchRange(low=1, high=8, depth=4), BatchRange(low=9, high=None, depth=0))
    artifacts, notes = rendered(Speculation(method="draft_model", drafter=DRAFT, depth=4, schedule=schedule))
    assert artifacts == ()
    assert notes["speculation.schedule"].kind is NoteKind.IMPOSSIBLE


def test_what_the_target_decides_is_not_guessed_for_another_engine() -> None:
    found = SGLANG.parse("--speculative-algorithm EAGLE3 --speculative-draft-model-path d")
    assert found.deployment.speculation.depth is None
    acting = {item.setting: item for item in SGLANG.defaults(found.deployment)}
    assert acting["speculation.depth"].value is None
    assert "LlamaForCausalLM" in acting["speculation.depth"].reason
    standalone = SGLANG.parse(
        "--speculative-algorithm STANDALONE --speculative-draft-model-path d"
    ).deployment
    assert {item.setting: item.value for item in SGLANG.defaults(standalone)}["speculation.depth"] == 3


def test_an_unknown_flag_of_speculation_is_refused_with_the_nearest() -> None:
    with pytest.raises(DraftproofError) as caught:
        SGLANG.parse("--speculative-algorithm EAGLE \\\n  --speculative-num-stepps 3")
    assert caught.value.field == "sglang, line 2, column 3"
    assert "--speculative-num-steps" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("--tp 2", "tensor_parallel", 2),
        ("--tensor=2", "tensor_parallel", 2),
        ("--dp 4", "data_parallel", 4),
        ("--mem 0.8", "memory_fraction", 0.8),
        ("--max-run 4 --max-running 8", "max_num_seqs", 8),
        ("--context-length 32k", "max_model_len", 32000),
        ("--context-length 32Ki", "max_model_len", 32768),
        ("--context-length 1.5k", "max_model_len", 1500),
        ("--context-length ' 4096 '", "max_model_len", 4096),
        ("--lora-pa=a=b", "lora", True),
        ("--lora-paths", "lora", True),
        ("sglang serve org/name --tp 2", "target", ModelRef(name="org/name")),
    ],
)
def test_flags_are_read_as_argparse_reads_them(text: str, path: str, value: object) -> None:
    parsed = SGLANG.parse(text)
    assert getattr(parsed.deployment, path) == value
    assert not {remark.effect for remark in parsed.remarks} - {"ignored"}


@pytest.mark.parametrize(
    "text",
    [
        "--pp 2",  # begins three flags
        "--quant fp8",
        "--port",
        "--trust-remote-code=1",
        "--context-length 32K",
        "--context-length 1.5Ki",
        "--context-length 1.5",
        "--cuda-graph-backend-decode tc_piecewise",
        "--speculative-draft-load-format zip",
        "--speculative-moe-runner-backend none",
        "org/name",
        "python -m sglang.launch_server org/name",
    ],
)
def test_what_its_parser_refuses_is_refused(text: str) -> None:
    with pytest.raises(DraftproofError, match="DP111"):
        SGLANG.parse(text)


@pytest.mark.parametrize("text", ["--no-such-flag 3", "-tp 2", "--mem_fraction_static 0.8"])
def test_a_flag_that_it_does_not_have_is_told_and_carried_along(text: str) -> None:
    parsed = SGLANG.parse(f"--model-path m {text}")
    assert [(remark.effect, remark.setting) for remark in parsed.remarks] == [("stray", text.split()[0])]
    assert list(parsed.deployment.rest) == text.split()


def test_flags_that_are_not_judged_are_carried_along_written_out() -> None:
    text = "--model-path m --trust-rem --chat-templ=-x --log-requests-target stdout /tmp/l --speculative-ngram-cap 9"
    parsed = SGLANG.parse(text)
    assert parsed.deployment.rest == (
        "--trust-remote-code", "--chat-template=-x", "--log-requests-target", "stdout", "/tmp/l",
    )  # fmt: skip
    assert SGLANG.parse(SGLANG.render(parsed.deployment).artifacts[0].text).deployment == parsed.deployment


def test_a_flag_that_is_gone_is_no_beginning_of_another() -> None:
    found = SGLANG.parse("--model-path m --cuda-graph-max-bs 8")
    assert found.deployment.graph_max_batch == 8
    assert [remark.effect for remark in found.remarks] == ["removed"]
