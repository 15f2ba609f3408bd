from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from ddpnb.recording.calls import Site
from ddpnb.recording.findings import Diagnosis, Finding, FindingType
from ddpnb.render import card, markup
from tests.render.findings import USUAL, hang, saying

TAGS = {"style", "div", "svg", "path", "span", "ul", "li", "code", "a", "b"}
ATTRIBUTES = {
    "class", "style", "role", "aria-label", "aria-hidden", "viewbox", "d", "fill-rule", "href", "target", "rel",
    "data-file", "data-line", "title",
}  # fmt: skip


class Page(HTMLParser):
    """What a browser would see: every tag closed by its own, texts and attributes decoded."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(fragment)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def shown_of(found: Diagnosis) -> str:
    return markup.standalone(card.html(found), "diagnosis")


def page(found: Diagnosis) -> Page:
    return Page(shown_of(found))


HOSTILE = {
    "script": "<script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "attribute": '" onmouseover="alert(1)',
    "single quote": "' onfocus='alert(1)",
    "end of style": "</style><script>alert(1)</script>",
    "end of card": "</div></div><h1>",
    "entity": "&lt;script&gt;",
    "comment": "<!-- ",
    "cdata": "<![CDATA[",
    "javascript": "javascript:alert(1)//",
    "data": "data:text/html,<script>alert(1)</script>",
    "braces": "%s %(x)s {0} {x}",
}


# -- what is said


def test_a_card_says_what_why_where_and_how_to_mend_it():
    seen = page(hang())
    for text in (
        "hang: the ranks cannot continue",
        USUAL.summary,
        *USUAL.evidence,
        "DDP301 collective-missing",
        "…/user/train.py:95",
        USUAL.remedy,
    ):
        assert text in seen.text


def test_the_card_has_names_for_those_who_do_not_see_it():
    attributes = page(hang()).attributes
    assert ("aria-label", "diagnosis") in attributes
    assert ("aria-label", "DDP301") in attributes
    assert ("role", "article") in attributes


def test_the_time_to_the_verdict_is_told():
    assert "detected 1.2 s after the last progress" in page(hang(timing={"diagnosis_s": 1.24})).text


@pytest.mark.parametrize("outcome", ["ok", "hang", "crash", "divergence"])
def test_a_diagnosis_without_findings(outcome):
    seen = page(Diagnosis(outcome, settled=True))
    assert outcome in seen.text
    assert ("role", "article") not in seen.attributes


def test_a_running_run_is_not_shown_as_completed():
    seen = page(Diagnosis())
    assert "running" in seen.text
    assert "completed" not in seen.text


@pytest.mark.parametrize("severity", ["error", "warning", "note"])
def test_every_severity_has_its_own_sign(severity):
    """Never colour alone."""
    shown = shown_of(hang(dataclasses.replace(USUAL, severity=severity)))
    others = [shown_of(hang(dataclasses.replace(USUAL, severity=s))) for s in ("error", "warning", "note")]
    card = shown[shown.index('role="article"') :]
    assert sum(card == other[other.index('role="article"') :] for other in others) == 1


def test_a_finding_with_nothing_but_a_summary():
    seen = page(hang(Finding(FindingType("DDP999", "unknown"), "Something.")))
    assert "Something." in seen.text
    assert "Where:" not in seen.text
    assert "Fix:" not in seen.text


def test_of_a_thousand_places_a_few_are_shown():
    many = dataclasses.replace(USUAL, where=tuple((rank, Site("t.py", rank, "main")) for rank in range(1000)))
    shown = shown_of(hang(many))
    assert "and 992 more" in shown
    assert "rank 8:" not in shown
    assert len(shown) < 20_000


# -- links


def hrefs(site: Site) -> list[str]:
    seen = page(hang(dataclasses.replace(USUAL, where=((0, site),))))
    return [value for name, value in seen.attributes if name == "href"]


def test_a_file_below_the_working_directory_is_a_link(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hrefs(Site(f"{tmp_path}/my code/train #1.py", 9, "main")) == ["my%20code/train%20%231.py#line=8"]


@pytest.mark.parametrize("file", ["/usr/lib/train.py", "<stdin>", "<ipython-input-3-abc>"])
def test_what_jupyter_cannot_open_is_text(file):
    assert hrefs(Site(file, 9, "main")) == []
    seen = page(hang(dataclasses.replace(USUAL, where=((0, Site(file, 9, "main")),))))
    whole = [value for name, value in seen.attributes if name == "title"]
    assert f"{file}:9" in (*whole, seen.text) or f"{file}:9" in seen.text


@pytest.mark.parametrize(
    "file", ["javascript:alert(1)", "data:text/html,x", "https://example.org/x", "//example.org/x"]
)
def test_a_link_never_leaves_for_another_scheme_or_host(file):
    for href in hrefs(Site(file, 9, "main")):
        assert not re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//", href)


# -- what a rank must not do to a page


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_text_of_a_rank_stays_text(hostile):
    like = "<harmless>" if hostile.startswith("<") else "harmless"  # such a file is no link
    seen, harmless = page(saying(hostile)), page(saying(like))
    assert seen.tags == harmless.tags
    assert [name for name, _ in seen.attributes] == [name for name, _ in harmless.attributes]
    assert seen.text.count(hostile) == harmless.text.count(like)


def test_only_plain_tags_and_attributes_are_used():
    seen = page(hang())
    assert set(seen.tags) <= TAGS
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES


def test_nothing_is_loaded_from_elsewhere():
    shown = shown_of(hang())
    assert not re.search(r"https?:|//|@import|url\(|<script|<link", shown)


@pytest.mark.parametrize("control", ["\x1b[31m", "\x00", "\x07", "\x9b", "\r"])
def test_control_characters_are_taken_out(control):
    assert control not in shown_of(saying(f"a{control}b"))


def test_a_name_that_is_no_unicode_can_be_shown():
    """A path that is not UTF-8 comes as lone surrogates, which no message to a browser takes."""
    assert shown_of(saying("data/\udce4/train.py")).encode()
