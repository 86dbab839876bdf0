"""Every relative link in the documentation leads to a file, and every page is led to."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in links_of(page) if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_a_heading_find_it(page: Path) -> None:
    for path, heading in re.findall(r"\]\(([^)#\s:]*)#([^)]*)\)", page.read_text(encoding="utf-8")):
        assert heading in headings_of(page.parent / path if path else page), f"{path}#{heading}"


def headings_of(page: Path) -> set[str]:
    """As GitHub names them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links_of(page: Path) -> list[str]:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return [link for link in links if "://" not in link]


def test_every_page_is_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    waiting = list(reached)
    while waiting:
        page = waiting.pop()
        targets = {(page.parent / link).resolve() for link in links_of(page)}
        listed = {each for target in targets if target.is_dir() for each in target.glob("*.md")}
        new = {each for each in targets | listed if each.suffix == ".md" and each.exists()} - reached
        reached |= new
        waiting += new
    assert sorted(str(page.relative_to(ROOT)) for page in set(PAGES) - reached) == []
