"""The dashboard of a real world, without a browser: what a page would send is done, and what it would show is there."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path

import pytest

import ddpnb
from ddpnb import pitfalls
from ddpnb.errors import UsageError
from ddpnb.notebook.dashboard import Dashboard
from ddpnb.recorder.stacks.evaluation import MAX_TEXT
from ddpnb.render.margin import named
from tests.conftest import VICTIMS, alive
from tests.notebook.waiting import until_done
from tests.render.reading import Reading

pytestmark = pytest.mark.world

PACED, MISSING = str(VICTIMS / "paced.py"), str(VICTIMS / "missing.py")
LONG = 40.0
_STYLE = re.compile(
    "<style>.*?</style>", re.DOTALL
)  # of the output of cells: the page drops it, and has the rules itself


@lru_cache(64)
def text_of(html):
    """It is asked for many times a second, and is parsed once."""
    return Reading(html).text


class Desk:
    """Somebody who sits before a dashboard: clicks, and waits for what is shown."""

    def __init__(self, world):
        self.world = world
        self.dashboard = Dashboard(world)
        self.heads = []  # all that the head and the parts have shown
        for widget in (self.dashboard.head, *(part.widget for part in self.dashboard.parts.values())):
            widget.observe(lambda change: self.heads.append(text_of(_STYLE.sub("", change["new"]))), "html")

    def does(self, action, **values):
        """Click it, as the page would send it."""
        self.heads.clear()
        self.dashboard._act(action, {name.replace("__", ":"): str(value) for name, value in values.items()})

    def runs(self, script, arguments):
        """Run this, to its good end."""
        before = self.world.last_run
        self.does("run", script=script, arguments=arguments)
        self.until(lambda: self.world.last_run is not before)
        self.world.last_run.wait(LONG)
        self.is_at("last run: OK")

    def clicks(self, name, action, **values):
        """Click it in a part."""
        self.heads.clear()
        self.dashboard.parts[name].take(action, {key: str(value) for key, value in values.items()})

    def says(self, name, words):
        """Wait until this part shows this: the answer stands there, and not in the head."""
        part = self.dashboard.parts[name].widget
        self.until(lambda: words in text_of(part.html))
        assert words not in text_of(self.dashboard.head.html)

    def until(self, so):
        deadline = time.monotonic() + LONG
        while not so():
            assert time.monotonic() < deadline, f"{self.heads}\n{self.dashboard.text}"
            time.sleep(0.02)

    def reads(self, words):
        """Wait until the head has said this since the last click."""
        self.until(lambda: any(words in head for head in list(self.heads)))

    def sees(self, part, words):
        """Wait until this part shows this."""
        self.until(lambda: words in part.text or words in text_of(part.html))

    def is_at(self, activity):
        """Wait until the head says what goes on, or how the last run ended."""
        self.until(lambda: activity in self.dashboard.head.text.split("\n")[0].split(": ", 1)[1].split(", "))

    def is_done(self):
        self.until(lambda: not self.dashboard._tasks.busy)

    def leave(self):
        self.is_done()
        self.dashboard.stop()


@pytest.fixture(scope="module")
def launcher(forks):
    """The form that launches a world, after it has launched one of two ranks."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DDPNB_FORK", str(int(forks)))
        panel = launched()
    yield panel
    if panel.world is not None:
        panel.world.close()


def launched():
    panel = ddpnb.show()
    panel._act("launch", {"n": "2", "backend": "gloo", "fence": "raise"})
    panel._act("launch", {"n": "2"})  # a second click
    until_done(panel._tasks)
    return panel


@pytest.fixture(scope="module")
def pair(launcher):
    assert launcher.world is not None, launcher.text
    runs = launcher.world._runs
    runs.terms = runs.terms._replace(patience=2.0, end_after_patience=True)
    return launcher.world


@pytest.fixture
def desk(pair):
    """A dashboard of the world, whose ranks are free and have nothing armed."""
    if pair.release().left or not all(map(alive, pair.pids())):
        pair.restart()
    pair.heal()
    pair.resume()
    found = Desk(pair)
    yield found
    found.leave()


# -- look


def test_a_script_that_hangs_is_explained_and_its_ranks_are_released(desk):
    pids, shown = desk.world.pids(), desk.dashboard
    desk.does("run", script=MISSING, arguments="early_return")
    desk.sees(shown.card, "DDP301")
    desk.is_at("hang")
    desk.sees(shown.board, "DDP301")
    desk.sees(shown.parts["stacks"].widget, "early_return")
    desk.sees(shown.rank.widget, "early_return")
    assert "Rank 1 never calls the all_reduce" in shown.card.text
    assert "DDP301" in shown.text and "waiting" in shown.text
    assert shown.box.children[2:5] == (shown.card, shown.board, shown.rank.widget)
    if shown.rank.widget.chosen != 0:  # it shows the rank that is to blame, if that has a stack
        desk.does("rank", rank=0)
    desk.sees(shown.rank.widget, "all_reduce #1")
    desk.until(lambda: "call stack of rank 0" in shown.rank.widget.html)
    desk.does("rank", rank=0)
    assert shown.rank.widget.html == "" and shown.board.chosen is None
    desk.does("release")
    desk.reads("is released")
    assert desk.world.pids() == pids


def test_a_warning_stands_while_the_run_goes_on(desk, tmp_path):
    """Rank 1 waits for a program for longer than patience, and goes on."""
    runs, waits = desk.world._runs, tmp_path / "waits.py"
    runs.terms, kept = runs.terms._replace(patience=1.0, end_after_patience=False), runs.terms
    os.mkfifo(tmp_path / "fifo")
    waits.write_text(
        "import os, subprocess, sys\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        f"if dist.get_rank() == 1:\n    subprocess.run(['cat', {str(tmp_path / 'fifo')!r}])\n"
        "dist.barrier()\n"
    )
    desk.does("run", script=str(waits), arguments="")
    desk.sees(desk.dashboard.card, "DDP313")
    assert "may continue" in desk.dashboard.card.text and desk.world.last_run.outcome == "running"
    (tmp_path / "fifo").write_text("")
    desk.is_at("last run: OK")
    desk.until(lambda: "Withdrawn: rank 1 continued" in desk.dashboard.card.text)
    runs.terms = kept


def test_why_says_what_is_wrong_or_that_nothing_is(desk):
    desk.does("hold at", seq=2)
    desk.reads("Armed: hold")
    desk.does("run", script=PACED, arguments="3")
    desk.is_at("held")
    desk.is_done()
    desk.does("why")
    desk.reads("no problems found yet: ranks 0 and 1 held before all_reduce #2")
    desk.does("rank", rank=0)
    desk.until(lambda: "variables of" in desk.dashboard.rank.widget.html)
    desk.sees(desk.dashboard.rank.widget, "step")


@pytest.mark.full
def test_a_pitfall_has_its_own_fence_and_patience_and_leaves_the_worlds(desk):
    story, kept = pitfalls.get("collate-averages"), (desk.world.patience, desk.world.fence)
    runs = desk.world._runs
    runs.terms = runs.terms._replace(patience=story.patience + 7, fence="warn")
    before = desk.world.last_run
    desk.does("pitfall", name=story.name, fixed="1")
    desk.until(lambda: desk.world.last_run is not before)
    desk.is_done()
    assert desk.world.last_run.patience == story.patience
    assert (desk.world.patience, desk.world.fence) == (story.patience + 7, "warn")
    runs.terms = runs.terms._replace(patience=kept[0], fence=kept[1])
    desk.world.last_run.wait(30)


def test_two_dashboards_show_one_world(desk):
    other = Desk(desk.world)
    try:
        desk.runs(PACED, "5")
        for one in (desk, other):
            one.is_at("last run: OK")
            one.sees(one.dashboard.board, "last run: finished")
            one.sees(one.dashboard.parts["output"].widget, "done")
        other.does("hold")
        other.reads("Armed: every rank stops")
        assert other.dashboard.actions.listed == desk.dashboard.actions.listed != []
    finally:
        other.leave()


@pytest.mark.full
def test_without_a_page_only_the_outcome_is_followed_until_one_is_back(desk):
    head = desk.dashboard.head

    def page(here):
        head._handle_custom_msg({"action": "seen", "values": {"page": "one", "here": here}}, [])

    page("1")
    pictures = []
    desk.dashboard.board.observe(lambda change: pictures.append(change["new"]), "html")
    desk.does("run", script=PACED, arguments="1000000")
    desk.sees(desk.dashboard.board, "all_reduce")
    desk.is_done()
    page("")
    time.sleep(0.5)  # what was being drawn
    pictures.clear()
    time.sleep(1.5)
    assert not pictures
    page("1")
    desk.until(lambda: pictures)
    page("")
    desk.world.release()
    desk.is_at("last run: released")
    page("1")


@pytest.mark.full
def test_an_earlier_run_is_shown_as_it_was_and_two_are_compared(desk, tmp_path, monkeypatch):
    world, shown = desk.world, desk.dashboard
    desk.runs(PACED, "3")
    good = world.last_run
    desk.does("run", script=MISSING, arguments="early_return")
    desk.until(lambda: world.last_run is not good)
    bad = world.last_run.wait(LONG)
    desk.until(lambda: "hang, ranks are in it" in Reading(shown.parts["history"].widget.html).text)
    desk.does("release")
    desk.is_at("last run: hang")
    desk.until(lambda: "ranks are in it" not in shown.parts["history"].widget.html)
    assert world.runs[-2:] == [good, bad] and len(world.runs) <= 12
    assert good.what.endswith("paced.py 3") and bad.what.endswith("missing.py early_return") and good.began < bad.began
    desk.sees(shown.parts["history"].widget, "early_return")
    desk.is_done()
    desk.clicks("history", "show run", number=good.number)
    desk.is_at(f"below: run {good.number} as it was")
    desk.is_at("last run: hang")  # still
    desk.until(lambda: "all_reduce #3" in shown.timeline.text and "DDP301" not in shown.card.text)
    desk.until(lambda: "early_return" not in shown.parts["source"].widget.text)
    desk.sees(shown.parts["output"].widget, "done")
    desk.is_done()
    desk.clicks("history", "show run", number=bad.number)
    desk.sees(shown.card, f"Run {bad.number} (")
    desk.sees(shown.board, "waiting")
    desk.is_done()
    desk.clicks("history", "compare runs", first=good.number, second=bad.number)
    desk.sees(shown.parts["history"].widget, "collective-missing")
    text = str(ddpnb.compare_runs(good, bad))
    assert "outcome" in text and "first difference: calls, rank 0" in text and "compute" in text
    desk.is_done()
    desk.clicks("history", "show run", number="")
    desk.sees(shown.card, f"Last run ({bad.number})")
    desk.sees(shown.board, "last run: ")
    desk.is_done()
    desk.clicks("history", "show run", number="9999")
    desk.says("history", "run 9999 is not kept any more")
    desk.runs(PACED, "3")
    desk.clicks("history", "show run", number=bad.number)
    desk.sees(shown.card, f"Run {bad.number} (")
    monkeypatch.chdir(tmp_path)
    desk.does("save")
    desk.reads("Saved: hang.ddpnb")
    assert ddpnb.diagnose(ddpnb.load("hang.ddpnb")).findings == bad.diagnosis.findings  # not the last run
    desk.clicks("history", "show run", number="")


def test_an_idle_rank_that_is_killed_is_shown_dead(desk):
    desk.runs(PACED, "2")
    desk.sees(desk.dashboard.board, "last run: finished")
    os.kill(desk.world.pids()[1], signal.SIGKILL)
    desk.is_at("rank 1 is dead")
    desk.sees(desk.dashboard.board, "dead")
    desk.is_at("last run: OK")
    assert "killed (SIGKILL)" in desk.dashboard.timeline.text
    desk.does("restart")
    desk.reads("Rank 1 has a new process")
    desk.sees(desk.dashboard.board, "nothing is running")


def test_new_processes_for_all_ranks_are_asked_for_twice(desk):
    desk.runs(PACED, "2")
    desk.sees(desk.dashboard.board, "last run: finished")
    pids = desk.world.pids()
    desk.does("restart")
    desk.reads("Click restart again to give all ranks new processes")
    assert desk.world.pids() == pids
    desk.does("why")  # something else meanwhile: it is asked for again
    desk.does("hold")
    desk.does("restart")
    desk.reads("Click restart again")
    assert desk.world.pids() == pids


def test_the_last_calls_of_a_rank_are_those_of_this_run(desk):
    desk.runs(PACED, "4")
    desk.does("rank", rank=0)
    panel = desk.dashboard.rank.widget
    desk.sees(panel, "all_reduce #4")
    desk.is_done()
    desk.runs(PACED, "1")
    desk.until(lambda: "#4" not in panel.html)
    desk.sees(panel, "all_reduce #1")
    desk.does("rank", rank=0)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python stops at single lines from 3.12 on")
def test_a_rank_that_stops_at_a_line_is_stepped_in_its_panel(desk):
    """Its panel opens; what is watched and what is open is read at each stop; the other rank waits in its collective."""
    panel = desk.dashboard.rank.widget
    lines = Path(PACED).read_text().splitlines()
    first = 1 + next(number for number, line in enumerate(lines) if "all_reduce" in line)
    desk.does("hold line", file=PACED, line=first, ranks=1)
    desk.reads("Armed: hold at")
    desk.does("run", script=PACED, arguments="3")
    desk.until(lambda: panel.chosen == 1 and f"line {first} of paced.py" in desk.dashboard.board.html)
    desk.until(lambda: f"remove the hold at line {first}" in panel.html)
    desk.clicks("rank", "watch", expression="6 * 7")
    desk.until(lambda: "6 * 7: rank" in panel.text and "rank 1 42" in panel.text)
    desk.is_done()
    desk.clicks("rank", "rank over")
    desk.until(lambda: panel.text.splitlines()[0].startswith("rank 1: ") and f"paced.py:{first} " not in panel.text)
    desk.is_done()
    assert "rank 1 42" in panel.text
    desk.clicks("rank", "arm", file=named(PACED), line=first)
    desk.until(lambda: f"hold rank 1 at line {first}" in panel.html)
    desk.clicks("rank", "watch", expression="1 +")
    desk.says("rank", "1 +")
    desk.clicks("rank", "arm", file=named("/etc/passwd"), line=1)  # only lines of files that are shown are held
    desk.is_done()
    assert not desk.dashboard.actions.listed
    desk.clicks("rank", "rank whom", whom="all")
    desk.clicks("rank", "rank resume")
    desk.is_at("last run: OK")
    desk.clicks("rank", "unwatch", path="6 * 7")
    desk.does("rank close")


def test_the_hold_of_a_line_has_conditions_and_is_switched_off_and_on(desk):
    panel, shown = desk.dashboard.rank.widget, desk.dashboard
    line = 1 + next(number for number, line in enumerate(Path(PACED).read_text().splitlines()) if "all_reduce" in line)
    of, form = {"file": named(PACED), "line": line}, shown.parts["hold"].widget
    desk.does("hold")
    desk.does("run", script=PACED, arguments="6")
    desk.is_at("held")
    desk.does("rank", rank=1)
    desk.until(lambda: f"hold rank 1 at line {line}" in panel.html)
    desk.clicks("rank", "arm edit", **of)
    desk.clicks("rank", "arm with", **of, when="step ==", count="1")
    desk.says("rank", "is not a valid expression")
    assert "arm close" in panel.html  # what was written can be changed
    desk.is_done()
    desk.clicks("rank", "arm with", **of, when="step == 3", count="1")
    desk.until(lambda: any(one.hold.when for one in shown.actions.listed))
    assert "arm close" not in panel.html
    desk.is_done()
    desk.sees(form, "when step == 3 on rank 1: armed")
    for state in ("disabled", "armed"):
        desk.clicks("rank", "arm switch", **of)
        desk.is_done()
        desk.sees(form, f"when step == 3 on rank 1: {state}")
    holding = desk.world.hold(f"{PACED}:{line}", ranks=0, when="step == 5")  # in a cell
    desk.sees(form, "when step == 5 on rank 0: armed")
    holding.remove()
    desk.until(lambda: [one.hold.when for one in shown.actions.listed] == ["", "step == 3"])
    desk.does("resume")  # the hold before every call ends with it
    desk.sees(form, "when step == 3 on rank 1: holds rank 1")
    desk.clicks("rank", "watch", expression="step")
    desk.until(lambda: "step: rank" in panel.text and "rank 1 3" in panel.text)
    desk.is_done()
    again = Desk(desk.world)  # another cell shows the ranks: what is watched is watched there
    again.does("rank", rank=1)
    again.sees(again.dashboard.rank.widget, "step: rank 0 3, rank 1 3")
    again.leave()
    desk.clicks("rank", "arm", **of)
    desk.until(lambda: not shown.actions.listed)
    desk.is_done()
    desk.does("resume")
    desk.is_at("last run: OK")
    desk.clicks("rank", "unwatch", path="step")
    desk.does("rank close")


HOSTILE = """
import math
import torch
import torch.distributed as dist

class Long:
    def __repr__(self):
        return "<script>alert(1)</script>" * 40_000

class Raises:
    def __getattr__(self, name):
        raise RuntimeError("</td><script>alert(2)</script>")
    def __repr__(self):
        raise RuntimeError("<img src=x onerror=alert(3)>")

def work():
    long, raises = Long(), Raises()
    html = {"<img src=x onerror=alert(4)>": "</table><script>alert(5)</script>", "b": [long, raises]}
    many = {number: str(number) for number in range(100_000)}
    deep = []
    for _ in range(500):
        deep = [deep]
    nan, meta = torch.full((4,), math.nan), torch.empty(3, device="meta")
    text = "<b>" * 300_000
    total = torch.ones(1)
    dist.all_reduce(total)  # here

dist.init_process_group("gloo")
work()
"""


@pytest.mark.full
def test_whatever_the_values_of_a_rank_are_its_panel_shows_them(desk, tmp_path):
    """Huge, deep, HTML, without data, or such that looking at them raises: bounded and escaped."""
    path, panel = tmp_path / "values.py", desk.dashboard.rank.widget
    path.write_text(HOSTILE)
    line = 1 + next(number for number, line in enumerate(HOSTILE.splitlines()) if "# here" in line)
    desk.does("hold line", file=path, line=line, ranks=1)
    desk.does("run", script=path)
    desk.until(lambda: panel.chosen == 1 and f"remove the hold at line {line}" in panel.html)
    names = ("html", "html['b']", "many", "deep", "deep[0]", "nan", "meta", "raises", "long")
    for name in names:
        desk.clicks("rank", "open", path=name)
        desk.until(lambda name=name: panel.opened.get(name) is not None)
    watched = ("long", "raises", "raises.x", "many", "deep", "nan", "meta", "text", "html", "[long] * 9")
    for expression in watched:
        desk.clicks("rank", "watch", expression=expression)
    desk.until(lambda: panel.values is not None and len(panel.values.rows) == len(watched))
    desk.is_done()
    found = Reading(panel.html)
    assert len(panel.html) < 300_000 and {"script", "img"}.isdisjoint(name for name, _ in found.tags)
    assert "onerror=alert(4)" in found.text and " more parts" in found.text  # text, and bounded
    longest = max((value for row in panel.values.rows for value in row.values.values()), key=len)
    assert 160 < len(longest) <= MAX_TEXT + 1  # not cut as it is shown: what differs further back differs
    for expression in watched:
        desk.clicks("rank", "unwatch", path=expression)
    desk.does("resume")
    desk.is_at("last run: OK")
    desk.does("rank close")


def test_an_answer_stands_beside_the_button_that_asked(desk):
    desk.clicks("hold", "evaluate", expression="6 * 7")
    desk.says("hold", "42")
    desk.is_done()
    desk.clicks("hold", "step", ranks="x")
    desk.says("hold", "'x' is not a list of ranks")
    assert "42" in Reading(desk.dashboard.parts["hold"].widget.html).text  # it stays: nothing below it moves
    desk.is_done()
    desk.clicks("hold", "evaluate", expression="7 * 7")
    desk.says("hold", "49")
    assert "42" not in Reading(desk.dashboard.parts["hold"].widget.html).text
    desk.is_done()
    desk.clicks("run", "run", script="no-such-file.py")
    desk.says("run", "no-such-file.py")
    desk.is_done()
    desk.clicks("faults", "inject", kind="delay", ranks="1")
    desk.says("faults", "Armed: fault delay")
    desk.is_done()
    desk.does("release")
    desk.until(lambda: "nothing to release" in Reading(desk.dashboard.head.html).text)


# -- hold and step


def test_hold_step_evaluate_and_resume(desk):
    shown = desk.dashboard
    desk.does("hold")
    desk.reads("Armed: every rank stops before its next collective.")
    desk.does("run", script=PACED, arguments="5")
    desk.is_at("held")
    desk.sees(shown.board, "all_reduce #1 of default_pg")
    desk.is_done()
    desk.until(lambda: "Armed" not in shown.head.text)
    desk.does("evaluate", expression="step + 40")
    desk.reads("40")
    desk.does("evaluate", expression="1 / 0")
    desk.reads("ZeroDivisionError")
    desk.does("step", n=2)
    desk.sees(shown.board, "all_reduce #3 of default_pg")
    desk.is_done()
    desk.does("step", ranks="0")
    desk.sees(shown.board, "waiting")
    desk.is_done()
    desk.does("resume")
    desk.is_at("last run: OK")
    desk.until(lambda: not shown.actions.listed)


def test_a_hold_can_be_removed_before_anybody_comes_to_it(desk):
    shown = desk.dashboard
    desk.does("hold at", before="all_reduce", seq=2, ranks="1")
    desk.sees(shown.parts["hold"].widget, "all_reduce #2")
    ((_, button),) = [one for one in Reading(shown.parts["hold"].widget.html).actions if one[0] == "unhold"]
    desk.does("unhold", number=button["number"])
    desk.until(lambda: not shown.actions.listed)
    desk.is_done()
    desk.runs(PACED, "3")


# -- break and fix


@pytest.mark.full
def test_a_fault_of_the_form_strikes_and_gives_its_finding(desk):
    shown = desk.dashboard
    desk.does("kind", kind="skip")
    assert Reading(shown.parts["faults"].widget.html).all("form")[0]["data-key"] == "skip"
    desk.does("inject", kind="block", op="all_reduce", seq=2, ranks="1")
    desk.reads("Armed: fault block of all_reduce #2 on rank 1: expected finding DDP313")
    desk.is_done()
    desk.does("run", script=PACED, arguments="4")
    desk.sees(shown.card, "DDP313")
    # Ranks that hang are still in their run. (A mismatch that both ranks see at the same moment ends it on both.)
    assert len(shown.actions.injections) == 1
    desk.does("release")
    desk.reads("are released")
    desk.until(lambda: not shown.actions.injections)


def test_a_fault_that_is_healed_does_not_strike(desk):
    shown = desk.dashboard
    for kind in ("kill", "raise"):
        desk.does("inject", kind=kind, ranks="1")
        desk.reads(f"Armed: fault {kind}")
        desk.is_done()

    def numbers():
        shown_actions = Reading(shown.parts["faults"].widget.html).actions
        return [values.get("number") for action, values in shown_actions if action == "heal"]

    desk.until(lambda: numbers() == ["0", "1", None])
    desk.does("heal", number="0")
    desk.until(lambda: [one.fault.kind for one in shown.actions.injections] == ["raise"])
    desk.is_done()
    desk.does("heal")
    desk.until(lambda: not shown.actions.injections)
    desk.is_done()
    desk.runs(PACED, "3")


@pytest.mark.full
def test_a_rank_that_dies_while_it_is_shown_is_replaced(desk):
    before = desk.world.pids()
    desk.does("run", script=PACED, arguments="5 1 2")
    desk.sees(desk.dashboard.card, "DDP311")
    desk.sees(desk.dashboard.board, "killed (SIGKILL)")
    desk.is_at("last run: crash")
    desk.does("release")
    desk.is_done()
    desk.does("restart", ranks="1")
    desk.reads("Rank 1 has a new process")
    assert desk.world.pids()[1] != before[1] and all(map(alive, desk.world.pids()))
    desk.is_done()
    desk.runs(PACED, "2")


# -- start-up


def test_start_up_step_by_step(desk):
    shown = desk.dashboard
    desk.does("begin")
    desk.sees(shown.parts["startup"].widget, "ready for environment")
    desk.is_done()
    for step in ("device", "store"):
        desk.does("step these", ranks="0")
        desk.sees(shown.parts["startup"].widget, f"rank 0: ready for {step}")
        desk.is_done()
    desk.does("step these", ranks="0")
    desk.sees(shown.parts["startup"].widget, "waits in the store for 1 of 2 ranks: 1")
    desk.is_at("starting up")
    desk.does("step these", ranks="0")
    desk.reads("rank 0 waits in the store")
    desk.does("release")
    desk.reads("is released")
    desk.is_done()
    desk.does("step all")
    desk.sees(shown.parts["startup"].widget, "rank 1: ready for device")


# -- wrong input


@pytest.mark.parametrize(
    ("action", "values", "words"),
    [
        ("step", {}, "not held"),
        ("step", {"ranks": "99"}, "there is no rank 99 in a world of 2"),
        ("resume", {"ranks": "0-5"}, "there is no rank 2 in a world of 2"),
        ("resume", {"ranks": "x"}, "'x' is not a list of ranks"),
        ("restart", {"ranks": "7"}, "there is no rank 7"),
        ("step", {"n": "x"}, "n must be a whole number from 1"),
        ("hold at", {"before": "allreduce"}, "Did you mean 'all_reduce'"),
        ("hold at", {"seq": "x"}, "seq must be a whole number from 1"),
        ("hold at", {"when": "step =="}, "step =="),
        ("hold at", {"parted": "1", "seq": "2"}, "Give no operation, seq, site or when with it"),
        ("evaluate", {}, "no expression given"),
        ("evaluate", {"expression": "1 +"}, "1 +"),
        ("evaluate", {"expression": "nobody"}, "NameError"),
        ("inject", {}, "no fault selected"),
        ("inject", {"kind": "skip", "seq": "x"}, "seq must be a whole number from 1"),
        ("inject", {"kind": "skip", "ranks": "99"}, "there is no rank 99"),
        ("run", {}, "no script given"),
        ("run", {"script": "no-such-file.py"}, "no-such-file.py"),
        ("run", {"script": PACED, "arguments": "'"}, "cannot parse the arguments"),
        ("pitfall", {"name": "no-such"}, "there is no pitfall 'no-such'"),
        ("story", {"name": "no-such"}, "there is no pitfall 'no-such'"),
        ("release", {}, "nothing to release"),
    ],
)
def test_wrong_input_is_said_and_nothing_breaks(desk, action, values, words):
    desk.does(action, **values)
    desk.reads(words)
    desk.is_done()
    assert not desk.world.closed and all(map(alive, desk.world.pids()))
    assert not desk.dashboard.actions.listed and not desk.dashboard.actions.injections


@pytest.mark.parametrize("action", ["step all", "step these", "run to the end"])
def test_before_start_up_was_begun_there_is_nothing_to_step(desk, action):
    desk.world.run(PACED, 1, stream=None).wait(LONG)
    desk.does(action, ranks="0")
    desk.reads("start-up has not begun")


@pytest.mark.parametrize("action", ["", "no such", "rank", "select", "kind", "unhold", "heal"])
def test_what_makes_no_sense_does_nothing(desk, action):
    for values in ({}, {"rank": "x", "number": "x", "kind": "x"} if action not in ("unhold", "heal") else {"number": "9"}):  # fmt: skip
        desk.does(action, **values)
        desk.is_done()
    desk.does("evaluate", expression="6 * 7")
    desk.reads("42")


# -- nothing blocks


def test_a_click_returns_although_the_world_is_busy(desk):
    """The lock is held here, so whatever waited for it in this thread would go on at once; another waits."""
    with desk.world._ranks.lock:
        assert desk.dashboard.actions.take("evaluate", {"expression": "40 + 2"})
        assert desk.dashboard._tasks.busy == ("evaluating",)
        assert "ddpnb evaluating" in {thread.name for thread in threading.enumerate()}
    desk.reads("42")


def test_what_is_no_action_of_a_world_is_not_taken(desk):
    assert not desk.dashboard.actions.take("rank", {})


def test_whoever_stops_looking_leaves_no_thread(desk):
    looking = desk.dashboard._live._thread
    assert looking.is_alive()
    desk.dashboard.stop()
    assert not looking.is_alive()


# -- show


def test_a_run_and_a_recording_are_shown_as_they_were(pair):
    pair.release()
    run = pair.run(MISSING, "early_return", stream=None).wait(LONG)
    try:
        for what in (run, run.recording):
            panel = ddpnb.show(what)
            assert "DDP301" in panel.text and "waiting" in panel.text and repr(panel) == panel.text
            assert panel._repr_mimebundle_()["text/plain"] == panel.text
    finally:
        pair.release()


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(UsageError, match="not int"):
        ddpnb.show(42)


# -- launch


@pytest.fixture
def no_jobs(monkeypatch):
    """Whatever else runs on this machine."""
    monkeypatch.setattr("ddpnb.notebook.launcher.jobs", list)


@pytest.mark.usefixtures("no_jobs")
def test_before_there_is_a_world_there_is_a_form():
    panel = ddpnb.show()
    assert panel.text == "no ranks yet"
    assert Reading(panel._form.html).fields == {"n", "backend", "fence"}
    panel._act("cancel", {})
    assert panel.text == "no ranks yet"


@pytest.mark.usefixtures("no_jobs")
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"n": "²"}, "n must be a whole number from 1"),
        ({"n": "0"}, "n must be a whole number from 1"),
        ({"n": "2", "fence": "high"}, "unknown fence 'high'"),
        ({"n": "2", "backend": "smoke"}, "smoke"),
    ],
)
def test_a_launch_that_cannot_be_is_said_and_one_may_try_again(values, words):
    panel = ddpnb.show()
    panel._act("launch", values)
    until_done(panel._tasks)
    assert panel.world is None and words in panel.text
    assert [action for action, _ in Reading(panel._form.html).actions] == ["launch", "jobs", "guide"]


@pytest.mark.full
def test_a_launch_that_is_cancelled_leaves_nothing():
    panel = ddpnb.show()
    panel._act("launch", {"n": "2"})
    panel._act("cancel", {})
    assert "cancelling" in panel.text
    until_done(panel._tasks)
    assert panel.world is None and "no processes are left" in panel.text


def test_what_was_launched_is_shown(launcher, pair):
    assert pair.size == 2 and not pair.closed
    assert "world of 2 ranks" in launcher.text and "rank board" in [one.label for one in launcher.box.children[:4]]


# -- the last one: it ends the world


def test_a_world_that_is_closed_while_it_is_shown_says_so(launcher, pair):
    desk = Desk(pair)
    if pair.last_run is None:
        desk.runs(PACED, "2")
    pids = pair.pids()
    pair.close()
    desk.is_at("closed")
    assert not any(map(alive, pids))
    usable = [one["data-action"] for one in Reading(desk.dashboard.head.html).all("button") if "disabled" not in one]
    assert {*usable} == {"save", "export", "share", "report", "keys"}  # what was recorded stays
    desk.does("hold")
    desk.reads("this world is closed")
    desk.until(lambda: "closed" in launcher.text)
    for one in (desk.dashboard, launcher.dashboard):
        one._live._thread.join(LONG)
        assert not one._live._thread.is_alive()
