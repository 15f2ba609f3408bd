"""The guide of a bisection as a page: everything that comes from outside is escaped."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ddpnb.recording.findings import Finding, FindingType
from ddpnb.render.answers import Answer
from ddpnb.studies.bisection import guide
from ddpnb.studies.bisection.search import Search, SearchResult
from ddpnb.studies.bisection.space import Component, Probe, RangeSpace, SetSpace
from ddpnb.studies.bisection.varied import Varied
from tests.render.reading import HOSTILE, Reading, harmless

OPTIONS = SetSpace([Component("--amp"), Component("--workers", "4"), Component("--log")])
FINDING = Finding(FindingType("DDP301", "collective-missing"), "Rank 1 never calls the barrier.")


@dataclass
class Shown:
    """A bisection, as far as it is shown."""

    title: str
    search: Search
    result: SearchResult | None = None
    said: str = ""
    command: str = ""
    left: int = 0
    by_hand: bool = True
    finding: dict | None = None

    def conclusion(self):
        return self.said

    def next_probe(self):
        return self.search.next_probe()

    def typed(self, _probe=None):
        return self.command

    def commit(self):
        return ""


def searched(*answers: tuple[tuple[str, ...], str]) -> Search:
    search = Search(OPTIONS)
    for on, answer in answers:
        search.answer(Probe(on), answer, "DDP301" if answer == "bad" else None, 1.25)  # type: ignore[arg-type]
    return search


def whole() -> Search:
    search = Search(OPTIONS)
    while probe := search.next_probe():
        search.answer(probe, "bad" if {"--amp", "--log"} <= set(probe.on) else "good", seconds=1.0)
    return search


def test_the_first_form_offers_to_continue():
    assert "continue it" not in guide.ask("", 4, 2, ["train.py"])
    page = Reading(guide.ask("train.py --amp", 4, 2, ["train.py"], log="The search of x was interrupted:"))
    assert "The search of x was interrupted:" in page.text and "continue it" in page.text
    assert "train.py --amp" in [one.get("value") for one in page.all("input")]


def test_what_is_proposed_is_ticked_and_what_is_suggested_is_not():
    amp, lr = Varied("option", "--amp", None, None), Varied("option", "--lr", "9", None)
    page = Reading(guide.choose("train.py", [amp, lr], [Varied("option", "--workers", "4", "0")]))
    ticks = ["checked" in box for box in page.all("input") if box.get("type") == "checkbox"]
    assert ticks == [True, True, False]
    values = {box["name"]: box.get("value") for box in page.all("input") if box["name"].startswith("harmless")}
    assert values == {"harmless:1": "", "harmless:2": "0"}  # a flag has no other value


def test_a_command_without_options_says_so():
    assert "no options to vary" in guide.choose("train.py", [], [])


def test_a_search_in_progress():
    search = searched((OPTIONS.names, "bad"), ((), "good"))
    shown = Shown("train.py", search, command="ddpnb run train.py --amp", left=4)
    assert "2 probes done, about 4 to go" in guide.head(shown) and "run to the end" in guide.head(shown)
    assert all(
        word in Reading(guide.upcoming(shown)).text
        for word in ("Probe 3", "ddpnb run train.py --amp", "good", "bad", "skip")
    )
    assert guide.remaining(shown).count("possible") == 3
    rows = Reading(guide.probes(search)).all("tr")
    assert len(rows) == 3
    assert guide.result(shown) == ""


def test_a_probe_that_runs_cannot_be_judged():
    shown = Shown("train.py", searched())
    assert "pause" in guide.head(shown, idle=False) and "run to the end" not in guide.head(shown, idle=False)
    assert "judge" not in guide.upcoming(shown, 3.0) and "<progress" in guide.upcoming(shown, 3.0)


def test_what_a_recording_answers_is_not_judged():
    page = guide.upcoming(Shown("train.py", searched(), by_hand=False))
    assert "run this probe" in page and "judge" not in page


def test_what_was_found():
    search = whole()
    shown = Shown(
        "train.py",
        search,
        search.result,
        "It fails with --amp and --log together.\nIt works with the others: --workers.",
        "ddpnb run train.py --amp --log",
        finding=FINDING.to_json(),
    )
    page = Reading(guide.result(shown, Answer())).text
    assert "It fails with --amp and --log together." in page and "DDP301" in page and "write repro.sh" in page
    chips = guide.remaining(shown)
    assert chips.count("cause</span>") == 2 and chips.count("ruled out") == 1
    assert guide.upcoming(shown) == ""
    assert "It fails with --amp and --log together." in Reading(guide.still(shown)).text


def test_values_in_order():
    search = Search(RangeSpace("--batch-size", range(1, 65)))
    search.answer(search.space.start, "bad")
    search.answer(search.space.harmless, "good")
    left = guide.remaining(Shown("train.py", search))
    assert "among --batch-size 2 to 64" in left and "63 values" in left
    search.answer(Probe(at=32), "good")
    assert "33 to 64" in guide.remaining(Shown("train.py", search))
    assert [cell for cell in ("64", "1", "32") if f"<td>{cell}</td>" in guide.probes(search)] == ["64", "1", "32"]


def test_many_components_have_one_column():
    search = Search(SetSpace([Component(f"--o{number}") for number in range(30)]))
    search.answer(search.space.start, "bad")
    assert guide.probes(search).count('<th scope="col"') == 4 and "as given" in guide.probes(search)


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_nothing_is_taken_for_html(hostile):
    hostile = hostile[:500]
    search = Search(SetSpace([Component(hostile, hostile)]))
    search.answer(search.space.start, "bad", hostile, 1.0, hostile)
    found = SearchResult("found", ((hostile,),))
    bad = Answer((hostile,), hostile, bad=True)
    shown = Shown(hostile, search, found, hostile, hostile, finding=FINDING.to_json())
    harmless(guide.ask(hostile, 4, 2, [hostile], log=hostile, answer=bad))
    harmless(guide.choose(hostile, [Varied("option", hostile, hostile, hostile)], [], answer=bad))
    harmless(guide.head(shown, answer=bad) + guide.result(shown, bad) + guide.still(shown))
    shown.result = None
    harmless(guide.upcoming(shown) + guide.upcoming(shown, 1.0) + guide.remaining(shown) + guide.probes(search))
