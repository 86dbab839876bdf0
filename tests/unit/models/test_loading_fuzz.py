"""Damaged checkpoints, end to end: whatever is changed in a file, it loads and works or is refused with a code."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.gguf import read_gguf
from draftproof.core.errors import CODES, DraftproofError
from draftproof.models.loading import load_model
from draftproof.models.template import load_template
from draftproof.models.tokenizer import Tokenizer
from draftproof.models.tokenizer_gguf import tokenizer_from_gguf
from support.checkpoints import write_checkpoint, write_gguf
from support.specs import Family, Spec

SMALL = Spec(hidden=32, heads=2, kv_heads=1, intermediate=32, layers=1, vocab=280)
FILES = ["model.gguf", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
         "model.safetensors"]  # fmt: skip

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


FAMILIES: list[Family] = ["llama", "gemma3", "phi3", "qwen3moe", "smollm3"]


@pytest.fixture(scope="module", params=FAMILIES)
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = replace(SMALL, family=request.param, experts=2, used_experts=1, window=4)
    directory = write_checkpoint(tmp_path_factory.mktemp("sound"), spec)
    has_window = request.param in ("gemma3", "phi3")  # files of the others know none
    write_gguf(directory / "model.gguf", replace(spec, window=4 if has_window else None), "Q8_0")
    assert outcome_of(directory) == outcome_of(directory / "model.gguf") == "fine"
    return directory


@pytest.fixture(scope="module")
def damaged(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(sound, tmp_path_factory.mktemp("damaged") / "model"))


def outcome_of(path: Path) -> str:
    """Loads and uses what lies there; "fine", or the code of the refusal."""
    try:
        loaded = load_model(path, dtype="float32", kernels="python")
        token_ids = loaded.tokenizer.encode("häh 🙂")
        loaded.tokenizer.decode(token_ids)
        loaded.template.render([{"role": "user", "content": "hi"}])
    except DraftproofError as error:
        str(error).encode()
        return error.code
    return "fine"


@settings(deadline=None, max_examples=60)
@given(data=st.data(), name=st.sampled_from(FILES))
def test_changed_bytes(sound: Path, damaged: Path, data: st.DataObject, name: str) -> None:
    content = bytearray((sound / name).read_bytes())
    start = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(start, min(len(content), start + 20)))
    content[start:stop] = data.draw(
        st.binary(max_size=20) | st.sampled_from([b"null", b"-1", b"[]", b"9" * 12])
    )
    (damaged / name).write_bytes(content)
    outcome = outcome_of(damaged / name if name == "model.gguf" else damaged)
    (damaged / name).write_bytes((sound / name).read_bytes())
    assert outcome == "fine" or outcome in CODES


def replace_somewhere(document: Any, data: st.DataObject) -> Any:
    """The document with one value, at any depth, replaced by another or left out."""
    if not isinstance(document, dict | list) or not document or data.draw(st.integers(0, 4)) == 0:
        return data.draw(anything)
    places = list(document) if isinstance(document, dict) else list(range(len(document)))
    place = data.draw(st.sampled_from(places))
    changed = document.copy()
    if data.draw(st.integers(0, 4)) == 0:
        del changed[place]
    else:
        changed[place] = replace_somewhere(document[place], data)
    return changed


@settings(deadline=None, max_examples=60)
@given(data=st.data(), name=st.sampled_from([name for name in FILES if name.endswith(".json")]))
def test_changed_values(sound: Path, damaged: Path, data: st.DataObject, name: str) -> None:
    document = replace_somewhere(json.loads((sound / name).read_text(encoding="utf-8")), data)
    (damaged / name).write_text(json.dumps(document), encoding="utf-8")
    outcome = outcome_of(damaged)
    (damaged / name).write_bytes((sound / name).read_bytes())
    assert outcome == "fine" or outcome in CODES


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_changed_gguf_metadata(sound: Path, data: st.DataObject) -> None:
    file = read_gguf(sound / "model.gguf")
    keys = [key for key in file.metadata if key.startswith("tokenizer.")]  # the others: test_changed_bytes
    key = data.draw(st.sampled_from(keys))
    metadata = file.metadata | {key: replace_somewhere(file.metadata[key], data)}
    outcome = build_or_code(metadata)
    assert isinstance(outcome, Tokenizer) or outcome in CODES
    file.metadata.update(metadata)
    assert load_template(file)


def build_or_code(metadata: dict[str, Any]) -> Tokenizer | str:
    try:
        tokenizer = Tokenizer(tokenizer_from_gguf(metadata))
    except DraftproofError as error:
        return error.code
    tokenizer.decode(tokenizer.encode("häh 🙂", add_special=True))
    return tokenizer
