"""Pages: what comes from a hostile server is text in both forms, and the HTML needs nothing else."""

import re
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.measure.pages import Heading, Items, Paragraph, Table, html, markdown

HOSTILE = (
    '<script>alert(1)</script> | [x](http://evil) ![i](y) `code` **b** _e_ "q" & \\ \n# not a heading\n| a |'
)
PAGE = [
    Heading(1, HOSTILE),
    Paragraph(HOSTILE),
    Items((HOSTILE, "1. one", "- two")),
    Table(("a|b", HOSTILE), (("x\ny", HOSTILE), ("", "|"))),
]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@given(text=st.text(max_size=60))
@settings(max_examples=80, deadline=None)
def test_html_shows_any_text_and_has_no_tags_but_ours(text: str) -> None:
    parser = Tags()
    parser.feed(html([Heading(1, "t"), Paragraph(text), Items((text,)), Table(("a",), ((text,),))]))
    ours = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "h1",
        "p",
        "ul",
        "li",
        "table",
        "thead",
        "tbody",
    }
    assert set(parser.tags) <= ours | {"tr", "th", "td"}
    assert not {"src", "href", "onclick"} & set(parser.attributes)


def test_hostile_text_is_text_in_html() -> None:
    page = html(PAGE)
    assert "<script" not in page
    assert "default-src 'none'" in page
    parser = Tags()
    parser.feed(page)
    assert "<script>alert(1)</script>" in "".join(parser.text)


def test_hostile_text_stays_in_its_line_and_cell_in_markdown() -> None:
    page = markdown(PAGE)
    lines = page.splitlines()
    assert sum(line.startswith("#") for line in lines) == 1
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 4
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)
    assert not re.search(r"(?<!\\)[<`*\[]", page)
    assert "http://" not in page
    assert "1\\. one" in page
    assert "\\- two" in page


def test_plain_words_and_numbers_stay_readable() -> None:
    text = "accepted_prediction_tokens = 1.25 (of 3), fireworks-speculation-acceptance: 0.9"
    assert markdown([Paragraph(text)]) == text + "\n"
    assert markdown([Table(("a",), (("1.225",),))]).splitlines()[2] == "| 1.225 |"
