from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from ddpnb.recording.findings import Finding, FindingType
from ddpnb.render import as_text
from ddpnb.render import pages as render
from ddpnb.render.explanation import Explanation
from ddpnb.rules.catalogue import CHAPTERS, UNTESTED, page, pages
from ddpnb.rules.finding_types import type_of
from tests.render.blocks import blocks
from tests.render.test_card import HOSTILE as HOSTILE_TEXT
from tests.render.test_card_html import HOSTILE as HOSTILE_HTML


def text(findings=(), pages=(), note="", **more):
    return as_text.text(*render.document(findings, pages, note), **more)


def html(findings=(), pages=(), note=""):
    return Explanation(tuple(findings), tuple(pages), note)._repr_html_()


ALL = list(pages().values())
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Seen(HTMLParser):
    """Tags that are closed by their own, and the text between them."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(fragment)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


# -- their Markdown


@pytest.mark.parametrize("one", ALL, ids=[one.code for one in ALL])
def test_no_mark_of_markdown_is_left_over(one):
    for _, body in (("", one.what), *one.parts):
        for kind, words in blocks(body):
            if kind != "code":
                assert "```" not in words
                assert words.count("`") % 2 == 0
                assert not re.search(r"\*\*|^#|\]\(", words)


# -- text


def test_a_page_has_all_its_parts():
    shown = text(pages=[page("DDP301")], width=100)
    assert shown.startswith("DDP301 collective-missing  (chapter 3: collectives)\n\nSome ranks are blocked")
    for heading in ("Symptom", "Detection", "Limitations", "How to fix", "Example", "See also"):
        assert f"\n\n{heading}\n  " in shown
    assert "  DDP308 uneven-iterations" in shown
    assert not shown.endswith("\n")


def test_what_is_untested_is_said_once():
    assert " ".join(text(pages=[page("DDP301")], width=60).split()).endswith(UNTESTED)
    assert html(pages=[page("DDP301"), page("DDP302")]).count(UNTESTED) == 1
    assert UNTESTED not in html([USUAL])


@pytest.mark.parametrize("width", [40, 72, 100])
@pytest.mark.parametrize("code", ["DDP301", "DDP101", "DDP703"])
def test_text_is_wrapped_and_code_is_not(width, code):
    one = page(code)
    shown = text(pages=[one], width=width)
    snippets = [
        line for _, body in one.parts for kind, words in blocks(body) if kind == "code" for line in words.splitlines()
    ]
    rows = shown.splitlines()
    for line in snippets:
        assert f"      {line}".rstrip() in rows
    rest = [row for row in rows[1:] if row not in {f"      {line}" for line in snippets}]
    assert all(len(row) <= width or " " not in row.strip().removeprefix("- ") for row in rest)


def test_an_item_hangs_under_its_first_word():
    shown = text(pages=[page("DDP301")], width=60)
    assert re.search(r"\n  - gloo: .+\n    \S", shown)


@pytest.mark.parametrize("one", ALL, ids=[one.code for one in ALL])
def test_colours_change_nothing_but_colour(one):
    painted = text(pages=[one], colour=True, width=80)
    assert ESCAPES.sub("", painted) == text(pages=[one], width=80)
    assert "\x1b[" in painted
    # A pager that begins in the middle shows no colour from above.
    assert all(row.count("\x1b[") % 2 == 0 for row in painted.splitlines())


def test_wrong_and_right_are_told_apart():
    painted = text(pages=[page("DDP301")], colour=True, width=100)
    assert "\x1b[31m# wrong" in painted
    assert "\x1b[32m# right" in painted


@pytest.mark.parametrize("width", [40, 79, 80, 100])
def test_the_list_has_a_line_for_each_code(width):
    shown = render.listing(width=width)
    rows = shown.splitlines()
    for one in ALL:
        assert sum(row.startswith(f"  {one.code}  {one.name}") for row in rows) == 1
    for number, chapter in CHAPTERS.items():
        assert f"{number} {chapter}" in rows
    assert all(len(row) <= width for row in rows)
    for one in ALL:  # nothing is cut
        assert " ".join(one.summary.split()) in " ".join(shown.split())


# -- errors explained

USUAL = Finding(type_of("DDP401"), "Two parameters got no gradient.", evidence=("head.weight.",), remedy="Use them.")


def test_an_error_says_what_why_and_how_to_fix_it():
    shown = text([USUAL], width=80)
    assert shown == ("Two parameters got no gradient.  [DDP401 unused-parameters]\n  - head.weight.\n  Fix: Use them.")
    assert ESCAPES.sub("", text([USUAL], colour=True, width=80)) == shown


@pytest.mark.parametrize("hostile", HOSTILE_TEXT.values(), ids=HOSTILE_TEXT.keys())
@pytest.mark.parametrize("colour", [False, True])
def test_control_characters_of_a_log_do_not_reach_the_terminal(hostile, colour):
    shown = text([Finding(type_of("DDP401"), hostile, evidence=(hostile,), remedy=hostile)], colour=colour)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", ESCAPES.sub("", shown))
    assert shown.count("\x1b") == text([USUAL], colour=colour).count("\x1b")


# -- HTML


@pytest.mark.parametrize("one", ALL, ids=[one.code for one in ALL])
def test_a_page_in_html_says_all_that_the_page_says(one):
    seen = Seen(html(pages=[one]))
    words = " ".join(seen.text.split())
    for _, body in (("", one.what), *one.parts):
        for kind, said in blocks(body):
            wanted = said if kind == "code" else said.replace("`", "")
            assert " ".join(wanted.split()) in words
    assert set(seen.tags) <= {"style", "div", "span", "p", "ul", "li", "pre", "code", "b", "h2", "svg", "path"}
    assert seen.tags.count("ul") == html(pages=[one]).count("<ul>")


def test_items_stand_in_a_list():
    shown = html(pages=[page("DDP401")])
    assert re.search(r"<ul>\n<li>gloo: .*?</li>\n<li>NCCL: .*?</li>\n</ul>", shown, re.DOTALL)


def test_it_has_names_for_those_who_do_not_see_it():
    attributes = Seen(html([USUAL], [page("DDP401")])).attributes
    assert ("aria-label", "explanation") in attributes
    assert attributes.count(("aria-label", "DDP401")) == 2


@pytest.mark.parametrize("hostile", HOSTILE_HTML.values(), ids=HOSTILE_HTML.keys())
def test_text_of_a_log_stays_text(hostile):
    seen = Seen(
        html([Finding(FindingType(hostile, hostile), hostile, evidence=(hostile,), remedy=hostile)], note=hostile)
    )
    harmless = Seen(html([Finding(FindingType("a", "a"), "a", evidence=("a",), remedy="a")], note="a"))
    assert seen.tags == harmless.tags
    assert [name for name, _ in seen.attributes] == [name for name, _ in harmless.attributes]


def test_nothing_is_loaded_from_elsewhere():
    seen = Seen(html([USUAL], ALL))
    assert {name for name, _ in seen.attributes} <= {
        "class",
        "role",
        "aria-label",
        "aria-hidden",
        "viewbox",
        "fill-rule",
        "d",
    }
    assert not re.search(r"@import|url\(", seen.text)
