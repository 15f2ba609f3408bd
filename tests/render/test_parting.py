"""Where ranks part, in a terminal, in a notebook and as Markdown."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ddpnb
from ddpnb.errors import UsageError
from ddpnb.recording.parting import Way
from ddpnb.recording.path import Kind, Path, word
from ddpnb.render import as_html, as_text, card
from ddpnb.render.parting import Partings, document
from tests.render.findings import USUAL, hang
from tests.render.partings import SKIPS, at, saying
from tests.render.reading import HOSTILE, Reading
from tests.rules.recordings import Rank, record

SHOWN = """\
Ranks part at a decision: train.py:8 in train, called from train.py:16 in main
                     6 | batch = next(it)
                     7 |
  ranks 0-3 part  >  8 | if not batch:
          rank 2 ->  9 |     continue
   ranks 0, 1, 3 -> 10 | loss = model(batch).sum()
  Rank 2 went another way: line 9, for the first time in 15
  ranks 0, 1, 3: line 10, as always (15 times)
    only here: all_reduce #15 of default_pg at train.py:11
  batch = [] on rank 2, [3, 4] on rank 0, [1] on rank 1 (now)
  step = 14 on ranks 0, 1 and 2 (now)
  Decided differently before; that may be why:
    - train.py:3 `rank == 0` (rank 0: line 4; ranks 1-3: line 5)"""


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr("os.getcwd", lambda: "/home/user")


def test_in_a_terminal():
    assert str(Partings([SKIPS])) == SHOWN
    assert str(Partings([replace(SKIPS, odd=())])).count("went another way") == 0
    assert str(Partings([SKIPS] * 5)).count("if not batch") == 3 and str(Partings([SKIPS] * 5)).endswith("And 2 more.")


@pytest.mark.parametrize("width", [40, 80])
def test_it_fits_into_a_terminal(width):
    long = tuple((number, f"{text}{'x' * 200}") for number, text in SKIPS.source)
    shown = as_text.text(document(replace(SKIPS, source=long)), width=width)
    assert max(map(len, shown.split("\n"))) <= width and "…" in shown
    assert as_text.text(document(SKIPS), colour=True, width=80) != as_text.text(document(SKIPS), width=80)


def test_of_many_ranks_ranges_or_their_number_are_shown():
    half = replace(SKIPS, ways=(Way(tuple(range(0, 64, 2)), at(9)), Way(tuple(range(1, 64, 2)), at(10))))
    assert "  32 ranks ->  9 |" in str(Partings([half]))
    assert "ranks 0-63 part  >  8 |" in str(Partings([half]))


def test_in_a_notebook():
    page = Reading(as_html.html(document(SKIPS)))
    rows = [attributes for tag, attributes in page.tags if tag == "tr"]
    assert [one.get("class") for one in rows] == [None, None, None, "parts", None, None]
    for words in ("if not batch:", "Rank 2 went another way: line 9", "batch = [] on rank 2", "that may be why"):
        assert words in page.text
    assert {("train.py#line=15"), ("train.py#line=2")} <= {one.get("href") for tag, one in page.tags if tag == "a"}
    assert "if not batch" in Partings([SKIPS])._repr_html_()


def test_on_a_card():
    found = hang(replace(USUAL, parting=SKIPS))
    assert str(found).index(USUAL.summary) < str(found).index("-> 10 |") < str(found).index(USUAL.evidence[0])
    shown = Reading(card.html(found)).text
    assert shown.index(USUAL.summary) < shown.index("if not batch:") < shown.index(USUAL.evidence[0])


def test_in_a_report():
    text = hang(replace(USUAL, parting=SKIPS)).to_markdown()
    assert "```\n" in text and "rank 2 ->  9 |     continue\n" in text
    assert "\n- Rank 2 went another way: line 9, for the first time in 15\n" in text
    fences = hang(replace(USUAL, parting=saying("```\n# x <img src=x>"))).to_markdown()
    assert fences.count("```") == 2 and "\n# x" not in fences
    outside = "".join(fences.split("```")[::2])
    assert "<img" not in outside


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_are_escaped_and_bounded(hostile):
    shown = as_html.html(document(saying(hostile), 8))
    Reading(shown)
    assert len(shown) < 200_000
    said = as_text.text(document(saying(hostile)))
    assert len(said) < 100_000 and "\x1b" not in said


def test_of_a_recording():
    nothing = record(Rank(0, 2), Rank(1, 2))
    assert ddpnb.partings(nothing) == ()
    assert str(ddpnb.partings(nothing)).startswith("Ranks 0 and 1: decisions are not recorded: that needs")
    assert "decisions are not recorded" in ddpnb.partings(nothing)._repr_html_()
    half = Path({"MainThread": (word(Kind.COLD),)}, missing="Not all threads are recorded: there are too many.")
    ranks = {0: replace(nothing.ranks[0], path=half), 1: replace(nothing.ranks[1], reported=True)}
    assert ddpnb.partings(replace(nothing, ranks=ranks)).notes == (
        "The ranks do not part, as far as their paths are recorded.",
        "Rank 0: Not all threads are recorded: there are too many.",
        "Rank 1: decisions are not in the logs and dumps that were read.",
    )
    with pytest.raises(UsageError):
        ddpnb.partings("hang.ddpnb")


def test_of_a_package_whose_text_is_not_known():
    """The recording holds the text of the user's own files: the decision is named without its lines."""
    found = hang(replace(USUAL, parting=replace(SKIPS, source=(), text="")))
    shown = str(found)
    assert "Ranks part at a decision: train.py:8 in train" in shown and "Rank 2 went another way: line 9" in shown
    assert " | " not in shown and "```" not in found.to_markdown()
