"""The documentation of the speculation object says what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from draftproof.core.errors import CODES
from draftproof.core.intent import FLOAT_RANGES, INT_RANGES, METHODS, parse_intent

DOCS = Path(__file__).parents[3] / "docs"
CONFIG = DOCS / "speculative-config.md"
PAGES = [CONFIG, *sorted((DOCS / "proposers").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_is_taken(page: Path) -> None:
    examples = re.findall(r"```json\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        parse_intent(example)


def test_every_method_has_a_page_and_a_row() -> None:
    text = CONFIG.read_text(encoding="utf-8")
    for method in METHODS:
        row = re.search(rf"^\| `{method}` \|.*$", text, re.MULTILINE)
        assert row, method
        assert method == "none" or (DOCS / re.search(r"\((proposers/[\w-]+\.md)\)", row[0])[1]).exists()  # type: ignore[index]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_ranges_and_defaults_are_those_of_the_code(page: Path) -> None:
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        key = cells[0].strip("`")
        if key not in INT_RANGES and key not in FLOAT_RANGES:
            continue
        low, high = INT_RANGES.get(key) or FLOAT_RANGES[key]
        assert f"{low:.0f} to {high:.0f}" in line
        named = [method for method in METHODS if method in cells[1].split(", ")] or [
            page.stem.replace("-", "_")
        ]
        for method in named:
            default = next(item.default for item in fields(METHODS[method]) if item.name == key)
            assert str(default) in cells


def test_every_key_and_code_is_listed() -> None:
    text = CONFIG.read_text(encoding="utf-8")
    for kind in METHODS.values():
        assert all(f"| `{item.name}` |" in text for item in fields(kind) if item.name != "method")
    assert all(f"| {code} |" in text for code in CODES if code.startswith("DP10"))
