"""The guide of a bisection, without a browser: its buttons, on a script that needs no torch."""

from __future__ import annotations

import contextlib
import os
import textwrap
import threading
import time

import psutil
import pytest

import ddpnb
from ddpnb.errors import ProbeEnded
from ddpnb.notebook.bisection_guide import Guide
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.studies.bisection.bisecting import Bisection
from ddpnb.studies.bisection.command import CommandSpace, Request
from ddpnb.studies.bisection.probing import CommandProber, Ran
from ddpnb.studies.bisection.search import Search
from tests.notebook.waiting import until_done
from tests.render.reading import Reading

LONG_S = 60.0
SCRIPT = """
    import argparse, time
    parser = argparse.ArgumentParser()
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--log")
    parser.add_argument("--slow", type=float, default=0)
    args = parser.parse_args()
    time.sleep(args.slow)
    if args.amp and args.log:
        raise SystemExit("cannot log halves")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def until(guide: Guide, text: str) -> None:
    deadline = time.monotonic() + LONG_S
    while text not in guide.text:
        assert time.monotonic() < deadline, guide.text
        time.sleep(0.05)


def running_in(folder) -> list[psutil.Process]:
    """The processes of probes of this test."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.cwd() == str(folder):
                found.append(process)
    return found


def begun(command: str, **values: str) -> Guide:
    guide = Guide(ranks=1)
    guide.act("propose", {"command": command, "n": "1"})
    guide.act("begin", values)
    return guide


def test_the_pair_is_found_and_written(folder):
    guide = Guide(ranks=1)
    assert guide.text == "what fails?"
    pages = [guide.form.html]
    guide.act("propose", {"command": "train.py --amp --log x", "n": "1"})
    pages.append(guide.form.html)
    assert "--workers" in guide.form.html  # it is not on the command line, but has workers by default
    guide.act("begin", {"on:0": "1", "on:1": "1", "on:2": "1", "harmless:2": "0"})
    until(guide, "It fails with --amp and --log=x together.")
    pages += [guide.form.html, guide.found.html]
    guide.act("write", {})
    until(guide, "Run it with: sh repro.sh")
    links = [
        one for one in Reading(guide.found.html).all("button") if one.get("data-written") == str(folder / "repro.sh")
    ]
    assert [one["data-how"] for one in links] == ["edit", "download"]
    assert (
        (folder / "repro.sh")
        .read_text()
        .splitlines()[-1]
        .startswith("ddpnb run -n 1 --end-after-patience train.py --amp --log x")
    )
    assert not (folder / "ddpnb-bisect.json").exists()
    guide.act("over", {})
    assert guide.text == "what fails?" and "train.py --amp --log x" in guide.form.html
    assert all('class="answer"' in page for page in pages), "no message moves the page"


def test_a_person_judges_undoes_and_continues_later(folder):
    guide = begun("train.py --amp --log x --slow 0.5", **{"on:0": "1", "on:1": "1"})
    guide.act("pause", {})
    until(guide, "probe 1: as given: fails")
    until(guide, "with none of them")
    guide.act("judge", {"answer": "good"})
    until(guide, "judged by hand")
    guide.act("undo", {})
    until(guide, "Taken back: with none of them.")
    guide.act("judge", {"answer": "wonderful"})
    until(guide, "there is no answer 'wonderful'")

    later = Guide(ranks=1)
    assert "interrupted after 1 probe" in later.form.html
    later.act("continue", {})
    later.act("step", {})
    until(later, "probe 2: with none of them: works")
    assert later.bisection is not None and later.bisection.result is None
    later.act("run", {})
    until(later, "It fails with --amp and --log=x together.")


def test_a_probe_is_ended_and_has_no_answer(folder):
    guide = begun("train.py --amp --log x --slow 60", **{"on:0": "1", "on:1": "1"})
    until(guide, "as given")
    guide.act("stop", {})
    until(guide, "the probe was ended")
    assert guide.bisection is not None and not guide.bisection.trials
    assert "run this probe" in guide.probe.html
    assert running_in(folder) == []


class Probes(CommandProber):
    """Runs probes as a test says."""

    def __init__(self, space, run):
        super().__init__(space.request, space.trying)
        self.run = run
        self.stopped = threading.Event()

    def stop(self):
        self.stopped.set()


def scripted(run) -> tuple[Guide, Probes]:
    space = CommandSpace(Request(("train.py", "--amp", "--log"), vary=("amp", "log")))
    probes = Probes(space, run)
    return Guide(Bisection(Search(space.space), probes)), probes


def late_threads(guide: Guide, monkeypatch) -> list:
    """The work of tasks that are started, which a busy machine begins later."""
    later = []
    start = guide._tasks.start
    monkeypatch.setattr(guide._tasks, "start", lambda what, work: later.append(lambda: start(what, work)))
    return later


FAILED = Ran([{"code": None, "summary": "it ended with exit status 1"}])


def test_what_is_asked_for_before_the_probe_has_begun_is_not_forgotten(folder, monkeypatch):
    guide, _ = scripted(lambda _: FAILED)
    later = late_threads(guide, monkeypatch)
    guide.act("run", {})
    guide.act("pause", {})
    later.pop()()
    until_done(guide._tasks)
    assert len(guide.bisection.trials) == 1


def test_an_end_that_comes_too_late_does_not_end_the_next_probe(folder):
    def run(_):
        if probes.stopped.is_set() and guide.bisection.trials:
            probes.stopped.clear()
            raise ProbeEnded("the probe was ended.", "")
        if not guide.bisection.trials:
            guide.act("stop", {})  # the probe has just come to its end
        return FAILED

    guide, probes = scripted(run)
    guide.act("run", {})
    until_done(guide._tasks)
    assert len(guide.bisection.trials) == 1
    guide.act("stop", {})  # nothing runs
    assert probes.stopped.is_set() and guide._began is None and not guide._pausing
    guide.act("step", {})
    until_done(guide._tasks)
    assert len(guide.bisection.trials) == 2 and "the probe was ended" not in guide.text


def test_the_second_try_of_another_failure_is_what_is_shown_and_judged(folder):
    script = folder / "train.py"
    guide = begun("train.py --amp --log x", **{"on:0": "1", "on:1": "1"})
    guide.act("pause", {})
    until(guide, "with none of them")
    script.write_text(script.read_text() + "\nraise ValueError('not this one')\n")
    guide.act("step", {})
    until(guide, "probe 2: with none of them: fails otherwise")
    assert "Probe 3: with none of them" in guide.probe.html
    guide.act("judge", {"answer": "good"})
    until(guide, "probe 3: with none of them again: works (judged by hand)")
    assert "Probe 4: with --amp alone" in Reading(guide.probe.html).text


def test_a_page_hears_of_a_probe_that_takes_long(folder, monkeypatch):
    beats = []
    monkeypatch.setattr("ddpnb.notebook.bisection_guide._BEAT_S", 0.05)
    monkeypatch.setattr(Fragment, "beat", lambda _: beats.append(time.monotonic()))
    guide = begun("train.py --amp --log x --slow 1", **{"on:0": "1", "on:1": "1"})
    guide.act("pause", {})
    until(guide, "probe 1: as given")
    assert len(beats) > 3


def test_a_search_in_which_nothing_fails_is_over(folder):
    guide = begun("train.py --amp", **{"on:0": "1"})
    until(guide, "Nothing fails")
    deadline = time.monotonic() + LONG_S
    while (folder / "ddpnb-bisect.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("command", "values", "said"),
    [
        ("", {}, "no command given"),
        ("train.py 'open", {}, "No closing quotation"),
        ("missing.py --amp", {}, "missing.py"),
        ("train.py --amp", {}, "nothing is chosen"),
        ("train.py --amp", {"env": "A=1|2", "span": "slow=1..2"}, "different searches"),
        ("train.py", {"env": "NAME"}, "harmless and a failing value"),
        ("train.py", {"span": "slow"}, "two whole numbers"),
        ("train.py --amp", {"on:0": "1", "env": "'"}, "No closing quotation"),
        ("train.py --amp", {"by": "luck"}, "no search by='luck'"),
    ],
)
def test_what_cannot_begin_is_said_and_keeps_the_form(folder, command, values, said):
    guide = begun(command, **values)
    assert said in guide.form.html.replace("&#x27;", "'") and guide.bisection is None
    assert not (folder / "ddpnb-bisect.json").exists()


def test_a_probe_that_cannot_run_is_said(folder):
    guide = begun("train.py --amp --log x", **{"on:0": "1", "on:1": "1"})
    guide.act("pause", {})
    until(guide, "with none of them")
    (folder / "train.py").unlink()
    guide.act("run", {})
    until(guide, "the script 'train.py' does not exist")
    until(guide, "Undecided")


def test_a_bisection_from_code_is_shown(folder):
    bisection = ddpnb.bisect("train.py", "--amp", "--log", "x", n=1, vary=["amp", "log"], run=False)
    panel = ddpnb.show(bisection)
    assert isinstance(panel, Guide) and "as given" in panel.text
    panel.act("run", {})
    until(panel, "together")
    assert '<span class="word">--log=x</span> together.' in bisection._repr_html_()


def test_the_name_of_the_guide_stays_a_function():
    assert callable(ddpnb.guide) and callable(ddpnb.guide)
    assert ddpnb.guide("train.py", n=3).text == "what fails?"
