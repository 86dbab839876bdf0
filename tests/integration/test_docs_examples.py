"""What the documents show of the library and of `--json` is what the code has and does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import draftproof
from draftproof.cli.generate import result_document
from draftproof.core.cost import SpeculationStats
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.request import RequestOutput, StreamEvent
from support.checkpoints import write_checkpoint
from support.fake_engine import FakeEngine

ROOT = Path(__file__).parents[2]
LIBRARY = (ROOT / "docs/library.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_python_examples_run_in_their_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a small generated model in place of the default one."""
    model, load = write_checkpoint(tmp_path / "model"), Engine.load
    monkeypatch.setattr(Engine, "load", lambda name, **options: load(model, **options))
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_of_the_library_exist(page: Path) -> None:
    kinds = {kind.__name__: kind for kind in (Engine, EngineConfig, RequestOutput, StreamEvent)}
    made = {"memory", "tokenizer", "config"}  # attributes that an engine gets when it is made
    text = page.read_text(encoding="utf-8")
    for kind, name in re.findall(rf"`({'|'.join(kinds)})\.(\w+)", text):
        assert hasattr(kinds[kind], name) or name in getattr(kinds[kind], "__dataclass_fields__", made), name
    for names in re.findall(r"from draftproof import ([\w, ]+)", text):
        assert set(names.split(", ")) <= set(draftproof.__all__)


def test_every_setting_of_an_engine_is_on_the_page_of_the_library() -> None:
    rows = "\n".join(re.findall(r"^\| (`.*?) \|", LIBRARY, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == {item.name for item in fields(EngineConfig)}


def test_every_key_of_the_document_is_on_the_page() -> None:
    output = RequestOutput(
        req_id="r", token_ids=(), text="", finish_reason="error", prompt_tokens=1, completion_tokens=0, prefill_s=0.0,
        decode_s=0.0, stats=SpeculationStats(), seed=1, error={"code": "DP501"},
    )  # fmt: skip
    document = result_document(output, "none", FakeEngine().describe())
    text = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    outer, _, inner = text.partition("| key |")[2].partition("| key of `speculation` |")
    for part, table in ((document, outer), (document["speculation"], inner)):
        assert isinstance(part, dict)
        listed = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))))
        assert listed == set(part)
