"""A page as headings, paragraphs, lists and tables, and two ways to write it: Markdown, and HTML in one file.

Called by reports. Texts may come from hostile servers: whatever would be markup is spelled out in both. The HTML
loads nothing from anywhere. Knows nothing of what a page says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Heading:
    """`level` 1 is the title of the page."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list without numbers."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Every row has as many cells as there are columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Paragraph | Items | Table


def markdown(blocks: Sequence[Block]) -> str:
    """GitHub's Markdown. Links and emphasis cannot be written: all text is plain."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def html(blocks: Sequence[Block]) -> str:
    """One file of HTML that needs no other and runs no script."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    body = "\n".join(_html(block) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n"
        f"</html>\n"
    )


_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:0}"
    "main{max-width:62rem;margin:0 auto;padding:2rem 1rem}h1{line-height:1.2}"
    "table{border-collapse:collapse;display:block;overflow-x:auto;margin:1rem 0}"
    "th,td{border:1px solid #8886;padding:.35rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
    "th{background:#8882}"
)


def _markdown(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {_plain(text)}"
        case Paragraph(text):
            return _plain(text)
        case Items(texts):
            return "\n".join(f"- {_plain(text)}" for text in texts)
        case Table(columns, rows):
            lines = ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in (columns, *rows)]
            lines.insert(1, "|" + "---|" * len(columns))
            return "\n".join(lines)


def _html(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Items(texts):
            return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"
        case Table(columns, rows):
            head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
            )
            return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _plain(text: str) -> str:
    """Text on one line whose every character stands for itself."""
    line = " ".join(text.split())
    line = re.sub(r"([\\`*\[\]<>#|~&])", r"\\\1", line)
    line = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)  # within a word an underscore is no emphasis
    line = line.replace("://", ":\u200b//")  # or GitHub makes a link of it
    line = re.sub(r"^(\d+)([.)])(?=\s)", r"\1\\\2", line)  # or it begins a list
    return re.sub(r"^([-+=])", r"\\\1", line)


def _cell(text: str) -> str:
    return _plain(text) or " "
