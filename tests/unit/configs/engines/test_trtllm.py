"""TensorRT-LLM's dialect: upper batch bounds, nodes without root, aliases, removed paths."""

from __future__ import annotations

import pytest
import yaml

from draftproof.configs.engines.base import NoteKind
from draftproof.configs.registry import dialect
from draftproof.configs.speculation import BatchRange, Deployment, ModelRef, Speculation, Tree
from draftproof.core.errors import DraftproofError

TRTLLM = dialect("trtllm")
DRAFT = ModelRef(name="d")
OF_THE_DOCUMENTS = {"decoding_type": "DraftTarget", "max_draft_len": 3, "speculative_model": "d"}


def parsed(**config: object) -> tuple[Speculation, list[tuple[str, str]]]:
    found = TRTLLM.parse(yaml.safe_dump({"speculative_config": config}))
    return found.deployment.speculation, [(remark.effect, remark.setting) for remark in found.remarks]


def written(speculation: Speculation, **more: object) -> dict[str, object]:
    rendered = TRTLLM.render(Deployment(engine="vllm", speculation=speculation, **more))  # type: ignore[arg-type]
    found = yaml.safe_load(rendered.artifacts[0].text)["speculative_config"]
    assert isinstance(found, dict)
    return found


def test_the_eagle_alias_is_told_and_never_written() -> None:
    speculation, remarks = parsed(decoding_type="Eagle", max_draft_len=4, speculative_model="d")
    assert speculation.method == "eagle3"
    assert remarks == [("rewritten", "decoding_type")]
    rendered = TRTLLM.render(
        Deployment(engine="vllm", speculation=Speculation(method="eagle", drafter=DRAFT, depth=4))
    )
    assert rendered.artifacts == ()
    note = next(note for note in rendered.notes if note.kind is NoteKind.IMPOSSIBLE)
    assert "EAGLE-1 and EAGLE-2" in note.reason


def test_two_model_paths_are_gone_while_draft_target_stays() -> None:
    assert parsed(decoding_type="Draft_Target", max_draft_len=3, speculative_model="d")[1] == []
    for key, name in (("eagle3_one_model", "Eagle3"), ("mtp_eagle_one_model", "MTP")):
        speculation, remarks = parsed(
            decoding_type=name, max_draft_len=3, speculative_model="d", **{key: False}
        )
        assert remarks == [("removed", key)]
        assert not speculation.extras


@pytest.mark.parametrize(
    ("config", "remarks"),
    [
        (OF_THE_DOCUMENTS, [("unsettled", "decoding_type")]),
        ({"decoding_type": "MTP", "num_nextn_predict_layers": 3}, [("deprecated", "num_nextn_predict_layers")]),
        ({"decoding_type": "MTP", "acceptance_window": 3}, [("removed", "acceptance_window")]),
        ({"decoding_type": "MTP", "allow_advanced_sampling": True}, [("ignored", "allow_advanced_sampling")]),
        ({"decoding_type": "MTP", "dynamic_tree_max_topK": 3}, [("ignored", "dynamic_tree_max_topK")]),
        ({"decoding_type": "NGram"}, [("refused", "max_draft_len")]),
        ({"decoding_type": "AUTO"}, [("inferred", "decoding_type")]),
        (
            {"decoding_type": "MTP", "max_draft_len": 3, "draft_len_schedule": {4: 2, 8: 3}},
            [("refused", "draft_len_schedule")],
        ),
    ],
)  # fmt: skip
def test_what_the_engine_does_on_its_own_is_remarked(
    config: dict[str, object], remarks: list[tuple[str, str]]
) -> None:
    assert parsed(**config)[1] == remarks


def test_a_key_of_a_schedule_is_the_upper_bound_and_above_the_largest_nothing_is_drafted() -> None:
    expected = (
        BatchRange(low=1, high=4, depth=4),
        BatchRange(low=5, high=8, depth=2),
        BatchRange(low=9, high=None, depth=0),
    )
    speculation, _ = parsed(decoding_type="MTP", max_draft_len=4, draft_len_schedule={4: 4, 8: 2})
    assert speculation.schedule == expected
    assert written(speculation)["draft_len_schedule"] == {4: 4, 8: 2}
    cut_off, _ = parsed(decoding_type="MTP", max_draft_len=4, max_concurrency=4)
    assert cut_off.schedule == (expected[0], BatchRange(low=5, high=None, depth=0))


def test_a_schedule_that_never_ends_ends_with_the_largest_batch() -> None:
    schedule = (BatchRange(low=1, high=4, depth=4), BatchRange(low=5, high=None, depth=2))
    table = written(Speculation(method="mtp", depth=4, schedule=schedule), max_num_seqs=64)[
        "draft_len_schedule"
    ]
    assert table == {4: 4, 64: 2}


def test_nodes_of_a_tree_do_not_count_the_root() -> None:
    tree = Tree(depth=3, branching=4, num_nodes=7)
    config = written(Speculation(method="eagle3", drafter=DRAFT, tree=tree))
    assert (config["max_draft_len"], config["dynamic_tree_max_topK"], config["max_total_draft_tokens"]) == (
        3,
        4,
        7,
    )
    too_many = Speculation(method="eagle3", drafter=DRAFT, tree=Tree(depth=3, branching=4, num_nodes=13))
    assert TRTLLM.render(Deployment(engine="sglang", speculation=too_many)).artifacts == ()


def test_unknown_keys_are_refused_with_place_and_nearest() -> None:
    with pytest.raises(DraftproofError) as caught:
        TRTLLM.parse("speculative_config:\n  decoding_type: MTP\n  max_draft_length: 3\n")
    assert caught.value.field == "trtllm, line 3, column 3"
    assert "max_draft_len" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "strays"),
    [
        ("max_batch_sise: 4", [("unknown", "max_batch_sise")]),
        ("max_batch_size: 4\nenable_iter_perf_stats: true\nbuild_config: {}", []),
        ("backend: _autodeploy\ncompile_backend: torch-opt", []),
    ],
)
def test_a_key_that_is_not_known_is_told_with_the_nearest(text: str, strays: list[tuple[str, str]]) -> None:
    remarks = dialect("trtllm").parse(text).remarks
    assert [(remark.effect, remark.setting) for remark in remarks] == strays
    assert all("nearest is max_batch_size" in remark.reason for remark in remarks)
