"""Every page has every part, no sentence occurs on two pages, and code snippets parse."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import pytest

from ddpnb.rules import catalogue
from ddpnb.rules.catalogue import CHAPTERS, PARTS, Page, page, pages, read
from tests.render.blocks import blocks

ALL = list(pages().values())
# Findings that cannot occur on CPU, or only in part: detected from facts and messages.
GPUS_ONLY = ("DDP201", "DDP203", "DDP204", "DDP206", "DDP207", "DDP208", "DDP604")
each = pytest.mark.parametrize("one", ALL, ids=[one.code for one in ALL])


def texts(one: Page) -> str:
    return "\n\n".join([one.what, *(body for _, body in one.parts)])


def code(one: Page, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)^```", texts(one), re.DOTALL | re.MULTILINE)


def test_codes_and_names_are_unique():
    assert len(ALL) == len({one.code for one in ALL}) == len({one.name for one in ALL})


def test_they_come_in_order_and_every_chapter_has_some():
    assert list(catalogue.codes()) == sorted(catalogue.codes())
    assert {one.number for one in ALL} == set(CHAPTERS)


@each
def test_the_symptom_covers_both_backends(one):
    items = [block.text.split(":")[0] for block in blocks(one.symptom) if block.kind == "item"]
    assert items == ["gloo", "NCCL"]


@each
def test_the_remedy_shows_wrong_and_right(one):
    assert blocks(one.fix), one.code
    shown = "\n".join(code(one, "python") + code(one, "sh"))
    assert re.search(r"^\s*# (wrong|stopped)", shown, re.MULTILINE) or one.code == "DDP314"
    assert re.search(r"^\s*# right", shown, re.MULTILINE) or one.code == "DDP314"


@each
def test_its_python_is_python(one):
    for snippet in code(one, "python"):
        ast.parse(snippet)


@each
def test_code_fits_a_line(one):
    assert all(len(line) <= 92 for snippet in code(one, r"\w*") for line in snippet.splitlines())


@each
def test_it_says_what_shows_it(one):
    assert re.match(r"(A script|A launcher script|A saved|Saved) ", one.shows)
    assert len(one.shows) < 120


@each
def test_related_codes_exist(one):
    assert one.see_also
    assert len(set(one.see_also)) == len(one.see_also)
    assert one.code not in one.see_also
    mentioned = set(re.findall(r"DDP\d{3}", texts(one)))
    assert mentioned | set(one.see_also) <= set(catalogue.codes())


@each
def test_it_is_short_and_plain(one):
    assert 2 <= len(re.findall(r"[.:](?:\s|$)", one.what)) <= 6
    assert texts(one).isascii()
    assert 150 < len(texts(one).split()) < 480
    assert len(one.summary) <= 160
    assert one.summary.endswith(".")


@pytest.mark.parametrize("number", GPUS_ONLY)
def test_what_needs_gpus_says_so(number):
    one = page(number)
    assert re.search(r"does not occur|only one half of it occurs", one.symptom)
    assert re.search(r"(Needs|needs|Requires) (several )?GPUs\.", one.recognised)


@each
def test_no_page_repeats_that_nccl_and_gpus_are_untested(one):
    assert not re.search(r"not (been )?(run|tested)\b.*\byet", texts(one))


def test_no_two_pages_say_the_same():
    said = defaultdict(set)
    for one in ALL:
        prose = re.sub(r"```.*?```", "", texts(one), flags=re.DOTALL)
        for sentence in re.split(r"(?<=[.;])\s+", prose):
            if len(sentence) > 60:
                said[sentence.strip()].add(one.code)
    assert {sentence: found for sentence, found in said.items() if len(found) > 1} == {}


def test_a_page_is_found_by_its_own_name():
    assert {one.code for one in ALL if catalogue.search(one.name.replace("-", " "), 1) != (one,)} == set()


# -- the reader

WHOLE = "# DDP901 a-name\n\n<!-- words: to look for -->\n\nWhat it is: so.\n\n" + "".join(
    f"## {heading}\n\n{'DDP301, DDP302' if heading == 'See also' else heading + ' text.'}\n\n" for heading in PARTS
)


def test_a_page_is_read():
    one = read(WHOLE)
    assert (one.code, one.name, one.words) == ("DDP901", "a-name", "to look for")
    assert (one.what, one.summary) == ("What it is: so.", "What it is.")
    assert one.see_also == ("DDP301", "DDP302")
    assert dict(one.parts)["How to fix"] == "How to fix text."
    assert [heading for heading, _ in one.parts] == ["How to fix", "Symptom", "Detection", "Limitations", "Example"]


@pytest.mark.parametrize(
    "broken",
    [
        "",
        WHOLE.replace("# DDP901 a-name", "# a-name"),
        WHOLE.replace("<!-- words: to look for -->", ""),
        WHOLE.replace("## Symptom\n\nSymptom text.\n\n", ""),
        WHOLE.replace("Symptom text.", ""),
        WHOLE.replace("What it is: so.", ""),
        WHOLE.replace("## Example", "## Examples"),
        WHOLE + "## More\n\ntext\n",
    ],
    ids=["empty", "no code", "no words", "no part", "empty part", "no beginning", "other heading", "one more"],
)
def test_a_page_without_all_its_parts_is_refused(broken):
    with pytest.raises(ValueError, match="a page"):
        read(broken)


def test_an_unknown_code_has_no_page():
    with pytest.raises(KeyError):
        page("DDP999")
