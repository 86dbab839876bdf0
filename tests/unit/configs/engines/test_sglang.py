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
        ("--speculative-algorithm STANDALONE", [("refused", "--speculative-algorithm")]),
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
