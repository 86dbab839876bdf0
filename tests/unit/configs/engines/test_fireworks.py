"""Fireworks' dialect: fields and flags one by one, versions, and what it refuses, where and why."""

from __future__ import annotations

import json

import pytest

from draftproof.configs.engines.account import said
from draftproof.configs.engines.base import NoteKind, Rendered
from draftproof.configs.registry import dialect
from draftproof.configs.speculation import Deployment, LookUp, ModelRef, Speculation
from draftproof.core.errors import DraftproofError

FIREWORKS = dialect("fireworks")
TARGET = "accounts/fireworks/models/qwen3-8b"
DRAFT = "accounts/fireworks/models/qwen3-0p6b"
CREATE = f"firectl deployment create {TARGET}"


def read(text: str, **files: str) -> tuple[dict[str, object], list[tuple[str, str]]]:
    found = FIREWORKS.parse(text, read=files.__getitem__ if files else None)
    return said(found.deployment), [(remark.effect, remark.setting) for remark in found.remarks]


def written(speculation: Speculation, **more: object) -> Rendered:
    deployment = Deployment(
        engine="vllm", target=ModelRef(name=TARGET), speculation=speculation, **more  # type: ignore[arg-type]
    )  # fmt: skip
    return FIREWORKS.render(deployment)


def fields(speculation: Speculation, **more: object) -> dict[str, object]:
    found = json.loads(written(speculation, **more).artifacts[0].text)
    assert isinstance(found, dict)
    return found


def why_impossible(speculation: Speculation) -> list[str]:
    rendered = written(speculation)
    assert rendered.artifacts == ()
    return [note.reason for note in rendered.notes if note.kind is NoteKind.IMPOSSIBLE]


@pytest.mark.parametrize(
    ("field", "value", "setting", "neutral"),
    [
        ("baseModel", TARGET, "target", TARGET),
        ("maxContextLength", 8192, "max_model_len", 8192),
        ("enableAddons", True, "lora", True),
        ("precision", "BF16", "dtype", "bfloat16"),
        ("precision", "FP16", "dtype", "float16"),
        ("precision", "FP8_MM_V2", "extras.fireworks.precision", "FP8_MM_V2"),
        ("enableMtp", True, "speculation.method", "mtp"),
        ("disableSpeculativeDecoding", True, "speculation.method", "none"),
        ("deploymentShape", "default", "extras.fireworks.deploymentShape", "default"),
    ],
)
def test_each_field_as_the_api_and_as_the_sdk_spells_it(
    field: str, value: object, setting: str, neutral: object
) -> None:
    settings, _ = read(json.dumps({field: value}))
    assert settings[setting] == neutral
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in field)
    if setting != f"extras.fireworks.{field}":
        assert read(json.dumps({snake: value}))[0] == settings


def test_drafter_look_up_and_the_default_of_the_base_model() -> None:
    drafted, remarks = read(json.dumps({"draftModel": DRAFT, "draftTokenCount": 4}))
    assert (drafted["speculation.method"], drafted["speculation.drafter"]) == ("draft_model", DRAFT)
    assert (drafted["speculation.depth"], remarks) == (4, [])
    looked_up, remarks = read('{"ngramSpeculationLength": 3, "draftTokenCount": 4}')
    assert (looked_up["speculation.method"], looked_up["speculation.lookup.max_ngram"]) == ("ngram", 3)
    assert remarks == []
    silent, remarks = read(json.dumps({"baseModel": TARGET, "draftModel": "", "draftTokenCount": 0}))
    assert (silent["speculation.method"], remarks) == ("auto", [("inferred", "draftModel")])


@pytest.mark.parametrize("field", ["draftModel", "ngramSpeculationLength"])
def test_the_count_is_required_for_both_methods(field: str) -> None:
    assert read(json.dumps({field: 3 if field.startswith("n") else "d"}))[1] == [
        ("refused", "draftTokenCount")
    ]


def test_what_is_switched_off_is_not_said() -> None:
    settings, remarks = read('{"draftModel": "d", "draftTokenCount": 4, "disableSpeculativeDecoding": true}')
    assert [path for path in settings if path.startswith("speculation.")] == ["speculation.method"]
    assert remarks == [("ignored", "speculation.drafter"), ("ignored", "speculation.depth")]


@pytest.mark.parametrize(
    ("flags", "setting", "neutral"),
    [
        ("--disable-speculative-decoding --wait", "speculation.method", "none"),
        ("--disable-speculative-decoding=true", "speculation.method", "none"),
        ("--disable-speculative-decoding=false", "speculation.method", "auto"),
        (f'--draft-model="{DRAFT}" --draft-token-count=4', "speculation.drafter", DRAFT),
        ("--ngram-speculation-length 3 --draft-token-count 4", "speculation.lookup.max_ngram", 3),
        ("--max-context-length 4096", "max_model_len", 4096),
        ("--enable-addons", "lora", True),
        ("--precision FP8", "extras.fireworks.precision", "FP8"),
        ("--wait --dry-run", "rest", ("--wait", "--dry-run")),
        ("--min-replica-count 0 --wait", "rest", ("--wait", "--min-replica-count", "0")),
    ],
)
@pytest.mark.parametrize("order", ["model first", "model last"])
def test_each_flag_of_the_command_and_back(flags: str, setting: str, neutral: object, order: str) -> None:
    text = f"{CREATE} {flags}" if order == "model first" else f"firectl create deployment {flags} {TARGET}"
    found = FIREWORKS.parse(text)
    settings = said(found.deployment)
    assert (settings[setting], settings["target"]) == (neutral, TARGET)
    rendered = FIREWORKS.render(found.deployment)
    assert {note.kind for note in rendered.notes} == {NoteKind.KEPT}
    assert FIREWORKS.parse(rendered.artifacts[0].text).deployment == found.deployment


def test_a_file_of_fields_counts_beneath_the_flags() -> None:
    text = f"{CREATE} --file=d.json --draft-token-count 6"
    settings, remarks = read(text, **{"d.json": '{"draftModel": "d", "draftTokenCount": 4}'})
    assert (settings["speculation.drafter"], settings["speculation.depth"], remarks) == ("d", 6, [])
    unread, remarks = read(text)
    assert ("unread", "--file") in remarks
    assert unread["rest"] == ("--file", "d.json")


def test_what_a_deployment_needs_and_counts() -> None:
    drafted = Speculation(method="draft_model", drafter=ModelRef(name=DRAFT), depth=4)
    assert fields(drafted, dtype="bfloat16", max_model_len=4096) == {
        "baseModel": TARGET, "maxContextLength": 4096, "precision": "BF16", "draftModel": DRAFT, "draftTokenCount": 4,
    }  # fmt: skip
    assert fields(Speculation(method="mtp", depth=1)) == {
        "baseModel": TARGET, "enableMtp": True, "draftTokenCount": 1,
    }  # fmt: skip
    assert fields(Speculation()) == {"baseModel": TARGET, "disableSpeculativeDecoding": True}
    looked_up = Speculation(method="ngram", depth=4, lookup=LookUp(min_ngram=3, max_ngram=3))
    assert fields(looked_up)["ngramSpeculationLength"] == 3


@pytest.mark.parametrize(
    ("speculation", "reason"),
    [
        (Speculation(method="draft_model", depth=4), "draftModel must be named"),
        (Speculation(method="draft_model", drafter=ModelRef(name=DRAFT)), "draftTokenCount must be said"),
        (Speculation(method="suffix", depth=4), "a draft model, look-up, or MTP"),
        (Speculation(method="eagle3", drafter=ModelRef(name="h"), depth=3), "draft addons"),
        (Speculation(method="auto"), "one method"),
    ],
)
def test_what_it_cannot_say_is_impossible_with_the_reason(speculation: Speculation, reason: str) -> None:
    assert any(reason in found for found in why_impossible(speculation))


def test_a_field_without_a_flag_is_not_written_into_a_command() -> None:
    mtp = FIREWORKS.parse(CREATE).deployment
    assert FIREWORKS.render(mtp).artifacts[0].text == f"{CREATE}\n"
    with_mtp = Deployment(
        engine="fireworks", target=mtp.target, extras=mtp.extras, speculation=Speculation(method="mtp")
    )
    rendered = FIREWORKS.render(with_mtp)
    assert rendered.artifacts == ()
    assert any("no flag" in note.reason for note in rendered.notes)


@pytest.mark.parametrize(
    ("text", "column", "found"),
    [
        ('{"draftModel": "d", "ngramSpeculationLength": 3}', 1, "draftModel and ngramSpeculationLength"),
        ('{"draftModel": 4}', 16, "4"),
        ('{"draftTokenCount": "four"}', 21, "'four'"),
        ('{"draftTokenCount": -1}', 21, "-1"),
        ('{"enableMtp": "yes"}', 15, "'yes'"),
        ('{"draftModel": "d", "draft_model": "e"}', 21, "draft_model a second time"),
        (f"{CREATE} other", len(CREATE) + 2, "other"),
        ("firectl deployment create --wait", 33, "no model"),
        (f"{CREATE} --draft-token-count four", len(CREATE) + 2, "--draft-token-count four"),
        (f"{CREATE} --wait=perhaps", len(CREATE) + 2, "--wait=perhaps"),
        ("firectl deployment update d", 1, "firectl"),
    ],
)  # fmt: skip
def test_refused_with_place_and_finding(text: str, column: int, found: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        FIREWORKS.parse(text)
    assert (caught.value.code, caught.value.field) == ("DP111", f"fireworks, line 1, column {column}")
    assert found in caught.value.found
    assert caught.value.expected
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("version", "taken"), [("1.2.30", True), ("1.2.99", True), ("1.3", False), ("1.2.29", False)]
)
def test_versions(version: str, taken: bool) -> None:
    if taken:
        assert FIREWORKS.parse("{}", version).deployment.version == version
        return
    with pytest.raises(DraftproofError) as caught:
        FIREWORKS.parse("{}", version)
    assert caught.value.code == "DP112"
