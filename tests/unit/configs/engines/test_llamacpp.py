"""llama.cpp's words: types and what belongs to them, flags of the past, contexts divided among slots."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.configs.engines.account import said
from draftproof.configs.engines.base import NoteKind
from draftproof.configs.registry import dialect
from draftproof.configs.speculation import Deployment, LookUp, ModelRef, Speculation
from draftproof.core.errors import DraftproofError

LLAMA = dialect("llamacpp")


def settings(text: str) -> dict[str, Any]:
    return said(LLAMA.parse(text).deployment)


def effects(text: str) -> list[tuple[str, str, str | None]]:
    return [(remark.effect, remark.setting, remark.today) for remark in LLAMA.parse(text).remarks]


def command(deployment: Deployment) -> str:
    return LLAMA.render(deployment).artifacts[0].text


def test_a_draft_model() -> None:
    text = (
        "llama-server -m big.gguf -md small.gguf --spec-type draft-simple --spec-draft-n-max 8 --spec_draft_n_min 2 "
        "--draft-p-min 0.5 -ngld 99 -ctkd q8_0 -ctvd q8_0 -ngl 99 --port 8080"
    )
    assert settings(text) == {
        "target": "big.gguf",
        "speculation.method": "draft_model",
        "speculation.drafter": "small.gguf",
        "speculation.depth": 8,
        "speculation.min_depth": 2,
        "speculation.min_confidence": 0.5,
        "speculation.draft_kv_dtype": "q8_0",
        "speculation.extras.llamacpp.spec-draft-ngl": "99",
        "rest": ("-ngl", "99", "--port", "8080"),
    }
    assert effects(text) == []


def test_a_drafter_without_a_type_is_remarked() -> None:
    """Build 11434 loads an ordinary drafter and does not draft with it unless the type is named."""
    assert effects("llama-server -m a.gguf -md b.gguf") == [
        ("inferred", "--spec-type", "--spec-type draft-simple")
    ]
    assert "--spec-type draft-simple" in command(LLAMA.parse("llama-server -m a.gguf -md b.gguf").deployment)


@pytest.mark.parametrize(
    ("flag", "today", "setting"),
    [
        ("--draft-max", "--spec-draft-n-max", "speculation.depth"),
        ("--draft", "--spec-draft-n-max", "speculation.depth"),
        ("--draft-n", "--spec-draft-n-max", "speculation.depth"),
        ("--draft-min", "--spec-draft-n-min", "speculation.min_depth"),
        ("--draft_n_min", "--spec-draft-n-min", "speculation.min_depth"),
    ],
)
def test_removed_flags_name_their_successor_and_keep_their_meaning(
    flag: str, today: str, setting: str
) -> None:
    text = f"llama-server -m a.gguf --spec-type draft-mtp {flag} 5"
    assert settings(text)[setting] == 5
    assert effects(text) == [("removed", flag.replace("_", "-"), today)]


def test_removed_lengths_of_n_grams_belong_to_the_type_in_use() -> None:
    text = "llama-server -m a.gguf --spec-type ngram-map-k --spec-ngram-size-n 8 --spec-ngram-size-m 16"
    assert settings(text)["speculation.lookup.max_ngram"] == 8
    assert settings(text)["speculation.depth"] == 16
    assert {today for _, _, today in effects(text)} == {
        "--spec-ngram-map-k-size-n",
        "--spec-ngram-map-k-size-m",
    }


def test_flags_of_other_types_have_no_effect() -> None:
    text = "llama-server -m a.gguf --spec-type ngram-simple --spec-draft-n-max 64"
    assert "speculation.depth" not in settings(text)
    assert effects(text) == [("ignored", "--spec-draft-n-max", None)]
    assert "--spec-draft-n-max 64" in command(LLAMA.parse(text).deployment)


def test_several_types_are_a_cascade_in_llama_cpps_own_order() -> None:
    parts = LLAMA.parse(
        "llama-server -m a.gguf --spec-type draft-mtp --spec-type ngram-simple,ngram-mod"
    ).deployment
    assert parts.speculation.method == "cascade"
    assert [(part.method, dict(part.extras)) for part in parts.speculation.parts] == [
        ("ngram", {}),
        ("ngram", {"llamacpp.type": "ngram-mod"}),
        ("mtp", {}),
    ]
    assert "--spec-type ngram-simple,ngram-mod,draft-mtp" in command(parts)
    other_order = Speculation(
        method="cascade", parts=(Speculation(method="mtp"), Speculation(method="ngram", depth=3))
    )
    rendered = LLAMA.render(Deployment(engine="elsewhere", speculation=other_order))
    assert rendered.artifacts == ()


def test_a_context_is_divided_among_slots() -> None:
    text = "llama-server -m a.gguf -c 16384 -np 4"
    assert (settings(text)["max_model_len"], settings(text)["max_num_seqs"]) == (4096, 4)
    assert settings("llama-server -m a.gguf -c 16384")["max_model_len"] == 16384
    assert settings("llama-server -m a.gguf -c 1000 -np 3")["max_model_len"] == 333
    assert effects("llama-server -m a.gguf -c 1000 -np 3") == [("rewritten", "--ctx-size", "999")]
    assert settings("llama-server -m a.gguf -c 16384 -np 4 -kvu")["max_model_len"] == 16384
    assert command(Deployment(engine="vllm", max_model_len=1000, max_num_seqs=8)).endswith(
        "--parallel 8 --ctx-size 8000"
    )


def test_models_are_files_or_repositories() -> None:
    assert settings("llama-server -hf ggml-org/Qwen3-4B-GGUF:Q8_0") == {
        "target": "ggml-org/Qwen3-4B-GGUF",
        "target.quantization": "Q8_0",
        "speculation.method": "none",
    }
    for text in (
        "llama-server --model a/b",
        "llama-server --model ./a/b.gguf",
        "llama-server --hf-repo a/b:Q4_0",
    ):
        assert command(LLAMA.parse(text).deployment) == text
    rendered = LLAMA.render(Deployment(engine="vllm", target=ModelRef(name="Qwen/Qwen3-8B")))
    assert rendered.artifacts[0].text == "llama-server --hf-repo Qwen/Qwen3-8B"
    assert "GGUF" in next(note.reason for note in rendered.notes if note.setting == "target")


def test_one_length_of_n_grams() -> None:
    speculation = Speculation(method="ngram", depth=5, lookup=LookUp(min_ngram=2, max_ngram=4))
    rendered = LLAMA.render(Deployment(engine="elsewhere", speculation=speculation))
    assert "--spec-ngram-simple-size-n 2" in rendered.artifacts[0].text
    assert {note.setting: note.kind for note in rendered.notes}[
        "speculation.lookup.max_ngram"
    ] is NoteKind.DROPPED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nothing"),
        ("vllm serve m", "llama-server"),
        ("llama-server m.gguf", "flags"),
        ("llama-server -m m.gguf --spec-draft-n-max=3", "word of its own"),
        ("llama-server -m m.gguf --spec-type draft-simpel", "draft-simple"),
        ("llama-server -m m.gguf --spec-type draft-mtp --spec-draft-n-max -1", "at least 0"),
        ("llama-server -m m.gguf --spec-type ngram-simple --spec-ngram-simple-size-n 2000", "1024"),
        ("llama-server -m m.gguf --spec-draft-n-max", "VALUE"),
        ("llama-server -m m.gguf -np 0", "above 0"),
        ("llama-server -m m.gguf -c 2 -np 3", "at least 3"),
    ],
)
def test_refusals_say_where_and_what(text: str, words: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        LLAMA.parse(text)
    assert caught.value.code == "DP111"
    assert "line 1, column" in caught.value.field
    assert words in f"{caught.value.expected} {caught.value.found} {caught.value.remedy}"


@pytest.mark.parametrize("method", ["suffix", "predicted", "self", "eagle", "pard", "lookahead", "auto"])
def test_what_llama_cpp_cannot_draft_with_is_impossible(method: str) -> None:
    speculation = Speculation(method=method, depth=3, drafter=ModelRef(name="d.gguf"))  # type: ignore[arg-type]
    rendered = LLAMA.render(Deployment(engine="elsewhere", speculation=speculation))
    assert rendered.artifacts == ()
    assert any(note.kind is NoteKind.IMPOSSIBLE and note.reason for note in rendered.notes)
