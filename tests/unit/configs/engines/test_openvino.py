"""OpenVINO GenAI's dialect: arguments one by one, chains and trees, versions, and what it refuses, where and why."""

from __future__ import annotations

import json

import pytest

from draftproof.configs.engines.account import said
from draftproof.configs.engines.base import NoteKind, Rendered
from draftproof.configs.registry import dialect
from draftproof.configs.speculation import Deployment, LookUp, ModelRef, Speculation, Tree
from draftproof.core.errors import DraftproofError

OPENVINO = dialect("openvino")
DRAFT, HEAD = ModelRef(name="draft-int8"), ModelRef(name="Qwen3-8B_eagle3-ov-int4")


def read(text: str) -> tuple[dict[str, object], list[tuple[str, str]]]:
    found = OPENVINO.parse(text)
    return said(found.deployment), [(remark.effect, remark.setting) for remark in found.remarks]


def of(**arguments: object) -> tuple[dict[str, object], list[tuple[str, str]]]:
    return read(json.dumps({"models_path": "main", **arguments}))


def written(speculation: Speculation, **more: object) -> Rendered:
    deployment = Deployment(
        engine="vllm", target=ModelRef(name="main"), speculation=speculation, **more  # type: ignore[arg-type]
    )  # fmt: skip
    return OPENVINO.render(deployment)


def lines(speculation: Speculation, **more: object) -> list[str]:
    return written(speculation, **more).artifacts[0].text.splitlines()


@pytest.mark.parametrize(
    ("arguments", "setting", "neutral"),
    [
        ({}, "target", "main"),
        ({"device": "GPU"}, "extras.openvino.device", "GPU"),
        ({"draft_model": "d", "draft_device": "NPU"}, "speculation.extras.openvino.draft_device", "NPU"),
        ({"draft_model": "d", "num_assistant_tokens": 4}, "speculation.depth", 4),
        ({"draft_model": "d", "assistant_confidence_threshold": 0.4}, "speculation.min_confidence", 0.4),
        ({"scheduler_config": {"max_num_seqs": 8}}, "max_num_seqs", 8),
        ({"scheduler_config": {"max_num_batched_tokens": 512}}, "max_num_batched_tokens", 512),
        ({"scheduler_config": {"enable_prefix_caching": False}}, "prefix_caching", False),
        ({"scheduler_config": {"cache_size": 2}}, "extras.openvino.scheduler_config", {"cache_size": 2}),
        ({"max_new_tokens": 100}, "extras.openvino.max_new_tokens", 100),
    ],
)
def test_each_argument(arguments: dict[str, object], setting: str, neutral: object) -> None:
    settings, remarks = of(**arguments)
    assert (settings[setting], remarks) == (neutral, [])


def test_as_python_and_as_json_it_says_the_same() -> None:
    python = (
        "from openvino_genai import *\n"
        "scheduler = SchedulerConfig()\nscheduler.cache_size = 2\nscheduler.max_num_seqs = 8\n"
        "config = GenerationConfig(max_new_tokens=100)\nconfig.num_assistant_tokens = 4\n"
        'pipe = LLMPipeline("main", "CPU", scheduler_config=scheduler, draft_model=draft_model("d", "GPU"))\n'
        'print(pipe.generate("text", config))\n'
    )
    settings, _ = read(python)
    arguments = {
        "device": "CPU", "draft_model": "d", "draft_device": "GPU", "num_assistant_tokens": 4, "max_new_tokens": 100,
        "scheduler_config": {"cache_size": 2, "max_num_seqs": 8},
    }  # fmt: skip
    assert settings == of(**arguments)[0]


def test_a_head_is_told_by_its_name_or_by_a_tree() -> None:
    """GenAI reads in the head's files what it is; a chain needs no words for it."""
    chain, remarks = of(draft_model=HEAD.name, num_assistant_tokens=5)
    assert (chain["speculation.method"], chain["speculation.depth"]) == ("eagle3", 5)
    assert remarks == [("inferred", "draft_model")]
    tree, remarks = of(draft_model="head", num_assistant_tokens=15, branching_factor=8, tree_depth=4)
    assert (tree["speculation.method"], remarks) == ("eagle3", [])
    assert [tree[f"speculation.tree.{name}"] for name in ("depth", "branching", "num_nodes")] == [4, 8, 15]
    assert "config.tree_depth = 5" not in lines(Speculation(method="eagle3", drafter=HEAD, depth=5))
    assert "config.tree_depth = 5" in lines(Speculation(method="eagle3", drafter=DRAFT, depth=5))


def test_a_head_is_not_written_as_a_draft_model() -> None:
    rendered = written(Speculation(method="draft_model", drafter=HEAD, depth=5))
    assert rendered.artifacts == ()
    assert any("eagle3" in note.reason for note in rendered.notes if note.kind is NoteKind.IMPOSSIBLE)


@pytest.mark.parametrize("drafter", [DRAFT, HEAD])
def test_five_tokens_act_where_nothing_is_said(drafter: ModelRef) -> None:
    parsed = OPENVINO.parse(json.dumps({"draft_model": drafter.name})).deployment
    assert {item.setting: item.value for item in OPENVINO.defaults(parsed)} == {"speculation.depth": 5}


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ({"prompt_lookup": True, "num_assistant_tokens": 5}, ["max_ngram_size"]),
        ({"prompt_lookup": True, "max_ngram_size": 3}, ["num_assistant_tokens"]),
        ({"prompt_lookup": True}, ["num_assistant_tokens", "max_ngram_size"]),
        ({"tree_depth": 3, "branching_factor": 2, "num_assistant_tokens": 2}, ["num_assistant_tokens"]),
        ({"tree_depth": 3, "branching_factor": 2, "num_assistant_tokens": 11}, ["num_assistant_tokens"]),
        ({"tree_depth": 3, "branching_factor": 2}, ["num_assistant_tokens"]),
        (
            {"tree_depth": 3, "branching_factor": 2, "num_assistant_tokens": 6, "do_sample": True},
            ["do_sample"],
        ),
        (
            {"tree_depth": 3, "branching_factor": 2, "assistant_confidence_threshold": 0.5},
            ["assistant_confidence_threshold", "num_assistant_tokens"],
        ),
    ],
)
def test_what_it_would_not_run_is_told(arguments: dict[str, object], refused: list[str]) -> None:
    drafter = {} if "prompt_lookup" in arguments else {"draft_model": "head"}
    assert of(**drafter, **arguments)[1] == [("refused", name) for name in refused]


def test_without_anything_to_draft_with_counts_are_ignored() -> None:
    settings, remarks = of(num_assistant_tokens=5)
    assert (settings["speculation.method"], remarks) == ("none", [("ignored", "num_assistant_tokens")])


def test_what_is_written() -> None:
    assert lines(Speculation(method="ngram", depth=5, lookup=LookUp(min_ngram=3, max_ngram=3)))[-4:] == [
        "config = openvino_genai.GenerationConfig()", "config.num_assistant_tokens = 5", "config.max_ngram_size = 3",
        "result = pipe.generate(prompt, config)",
    ]  # fmt: skip
    threshold = Speculation(method="draft_model", drafter=DRAFT, min_confidence=0.4)
    assert "config.assistant_confidence_threshold = 0.4" in lines(threshold)
    both = Speculation(method="draft_model", drafter=DRAFT, depth=3, min_confidence=0.4)
    dropped = [note for note in written(both).notes if note.setting == "speculation.min_confidence"]
    assert [note.kind for note in dropped] == [NoteKind.DROPPED]
    assert not any("confidence" in line for line in lines(both))


@pytest.mark.parametrize(
    "speculation",
    [
        Speculation(method="ngram", depth=5),
        Speculation(method="ngram", lookup=LookUp(max_ngram=3)),
        Speculation(method="draft_model", depth=5),
        Speculation(method="eagle3", drafter=DRAFT, tree=Tree(depth=3, branching=2, num_nodes=11)),
        Speculation(method="eagle3", drafter=DRAFT, tree=Tree(depth=3, branching=2)),
        Speculation(method="mtp", depth=1),
        Speculation(method="suffix", depth=5),
    ],
)
def test_what_it_cannot_run_is_impossible(speculation: Speculation) -> None:
    deployment = Deployment(engine="elsewhere", target=ModelRef(name="main"), speculation=speculation)
    assert OPENVINO.render(deployment).artifacts == ()


@pytest.mark.parametrize(
    ("text", "line", "column", "found"),
    [
        ('{"draft_model": "d", "prompt_lookup": true}', 1, 39, "draft_model and prompt_lookup"),
        ('{"draft_model": "d", "num_assistant_tokens": 3, "assistant_confidence_threshold": 0.4}', 1, 83, "0.4"),
        ('{"draft_model": "d", "num_assistant_tokens": "3"}', 1, 46, "'3'"),
        ('{"draft_model": "d", "num_assistant_tokens": -3}', 1, 46, "-3"),
        ('{"prompt_lookup": "yes"}', 1, 19, "'yes'"),
        ('{"scheduler_config": {"max_num_seqs": 1.5}}', 1, 39, "1.5"),
        ('pipe = LLMPipeline("m", "CPU",\n    draft_model=draft)\npipe.generate("x")', 2, 17, "not in the text"),
        ('pipe = LLMPipeline("m", draft_model=draft_model("d"))\nconfig = GenerationConfig()\n'
         "config.num_assistant_tokens = k\npipe.generate(x, config)", 3, 31, "not in the text"),
        ("tokens = 5\nprint(tokens)", 2, 1, "no pipeline"),
        ('pipe = LLMPipeline("m"', 1, 19, "never closed"),
    ],
)  # fmt: skip
def test_refused_with_place_and_finding(text: str, line: int, column: int, found: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        OPENVINO.parse(text)
    assert (caught.value.code, caught.value.field) == ("DP111", f"openvino, line {line}, column {column}")
    assert found in caught.value.found
    assert caught.value.expected
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("version", "taken"), [("2026.3.0", True), ("2026.4.1.0", True), ("2026.5", False), ("2026.2", False)]
)
def test_versions(version: str, taken: bool) -> None:
    if taken:
        assert OPENVINO.parse("{}", version).deployment.version == version
        return
    with pytest.raises(DraftproofError) as caught:
        OPENVINO.parse("{}", version)
    assert caught.value.code == "DP112"
