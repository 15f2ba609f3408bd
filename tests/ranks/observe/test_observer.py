"""The observer over files that nobody can trust: full, cut short, damaged."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import textwrap
import time

import pytest

from ddpnb.ranks import py_spy
from ddpnb.ranks.observe.observer import Observer
from ddpnb.ranks.rank_processes import RankView
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.models.samples import SampleFile
from ddpnb.recording import blackbox as layout
from ddpnb.recording.events import Unknown
from ddpnb.recording.events.data import DataLoop
from ddpnb.recording.events.startup import Environment
from ddpnb.recording.strings import STRING_LIMIT
from ddpnb.recording.verbs import Looked


class Engines(RankView):
    """One rank: this process."""

    def pid(self, _rank):
        return os.getpid()

    def exit_status(self, _rank):
        return None

    def device(self, _rank):
        return "cpu"

    def visible_devices(self, _rank):
        return None

    connection = "open"
    ends_with_script = False
    recorded = True

    def listens(self, _rank):
        return True

    def ask(self, _ranks, _request, _timeout):
        return {}


@pytest.fixture
def box(tmp_path):
    made = BlackBox(str(tmp_path / "rank0.box"), 0)
    made.set_run(1, layout.RUN_ACTIVE)
    made.emit(Environment(variables={"RANK": "0"}))
    return made


@pytest.fixture
def observer(tmp_path, box):
    SampleFile(str(tmp_path / "rank0.samples")).new_run(1)
    return Observer(Engines(), str(tmp_path), {0: str(tmp_path / "ending.json")}, 1)


def test_what_is_in_the_box_is_in_the_recording(observer):
    recording = observer.record(ask=False)
    assert [event.title for event in recording.ranks[0].history] == ["environment"]
    assert recording.gaps == ()


def test_events_that_have_left_the_ring_are_counted(observer, box):
    for number in range(layout.EVENTS + 7 - 1):  # one was there before
        box.emit(DataLoop(loader=0, step=number))
    recording = observer.record(ask=False)
    assert (len(recording.ranks[0].history), recording.ranks[0].events_forgotten) == (layout.EVENTS, 7)
    assert not recording.has_all_events
    (gap,) = recording.gaps
    assert "rank 0 keeps only the last events" in gap and "7 older ones" in gap
    box.set_run(2, layout.RUN_ACTIVE)
    assert box.emit(Environment()) is None
    again = Observer(observer._processes, observer._folder, {0: ""}, 2).record(ask=False)
    assert (again.ranks[0].events_forgotten, again.gaps) == (0, ())


def test_looks_from_outside_end_in_time_however_many_ranks_do_not_answer(tmp_path, monkeypatch):
    """After Ctrl-C nothing but SIGKILL ends the command until the last look is over."""
    looks = []

    def slow(_pid, timeout):
        looks.append(timeout)
        time.sleep(timeout)
        return ()

    monkeypatch.setattr(py_spy, "py_spy_stacks", slow)
    engines = Engines()
    many = Observer(engines, str(tmp_path), {rank: str(tmp_path / f"ending{rank}.json") for rank in range(32)}, 1)
    recording = many.record(outside_s=0.5)
    assert sum(looks) <= 0.5
    assert len(recording.ranks) == 32


def test_a_box_without_room_for_names_says_so(observer, box):
    filler = "x" * (STRING_LIMIT - 100)
    for number in range(layout.STRINGS_SIZE // len(filler) + 1):
        box.intern({"filler": filler, "number": number})
    box.emit(Unknown(named="y" * 1000, details={"a": 1}))
    (gap,) = observer.record(ask=False).gaps
    assert gap.startswith("The black box of rank 0 is full: the names and facts of some of its calls and events")


def test_files_that_are_cut_short_do_not_kill_the_launcher(tmp_path):
    """Through mappings it died of SIGBUS, and with it the user's notebook. In a process of its own, therefore."""
    script = """
        import os, sys
        from ddpnb.recorder.files.blackbox import BlackBox
        from ddpnb.recording import samples
        from ddpnb.ranks.observe.observer import Observer
        from ddpnb.ranks.rank_processes import RankView

        folder = sys.argv[1]
        BlackBox(f"{folder}/rank0.box", 0).set_run(1, 1)
        with open(f"{folder}/rank0.samples", "wb") as file:
            file.write(samples.MAGIC + samples.WRITTEN.pack(0, 0, 1))
            file.truncate(samples.FILE_SIZE)

        class Engines(RankView):
            ends_with_script = False
            def pid(self, rank): return os.getpid()
            def exit_status(self, rank): return None
            def device(self, rank): return "cpu"
            def visible_devices(self, rank): return None

        observer = Observer(Engines(), folder, {0: f"{folder}/ending.json"}, 1)
        observer.record(ask=False)
        for size in (5000, 100, 0):
            for name in ("rank0.box", "rank0.samples"):
                os.truncate(f"{folder}/{name}", size)
            observer.status(0)
            observer.follow()
            observer.waits(0)
            observer.account(1)
            observer.record(ask=False)
        print("lives")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "lives\n"), done.stderr


@pytest.mark.parametrize("size", [0, 3, layout.BOX_SIZE - 1])
def test_a_box_that_is_too_short_is_none(tmp_path, size):
    (tmp_path / "rank0.box").write_bytes(layout.MAGIC.ljust(layout.BOX_SIZE, b"\0")[:size])
    observer = Observer(Engines(), str(tmp_path), {0: ""}, 1)
    assert observer.status(0).calls == 0
    assert observer.record(ask=False).ranks[0].calls == ()


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_box_gives_a_recording_all_the_same(observer, box, seed):
    dice = random.Random(seed)
    for _ in range(20):
        box.emit(Environment(variables={"RANK": "0", "number": dice.random()}))
        box.mark(layout.MARK_STEP)
    observer.record(ask=False)
    for _ in range(dice.choice((3, 300))):
        box.memory[dice.randrange(8, 256) if dice.random() < 0.3 else dice.randrange(8, layout.BOX_SIZE)] = (
            dice.randrange(256)
        )
    observer.account(1)
    assert observer.record(ask=False).world_size == 1


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", "null", "{}", '{"how": "finished"}', '{"how": "finished", "code": 1e999, "at_ns": 1}',
     '{"how": "finished", "code": 0, "at_ns": 1, "frames": 3}', '{"how": "finished", "code": [], "at_ns": 1}', "[" * 100_000],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_an_ending_that_makes_no_sense_is_none(observer, tmp_path, text):
    (tmp_path / "ending.json").write_text(text)
    assert observer.ending(0) is None
    (tmp_path / "ending.json").write_text(json.dumps({"how": "finished", "code": 0, "at_ns": 1}))
    assert observer.ending(0).well


@pytest.mark.parametrize(
    "stack",
    [7, None, "x", [], {"frames": {"a": 1}}, {"frames": [1]}, {"frames": "abc"}, {"frames": [{"line": "abc"}]},
     {"frames": [{"line": math.inf}]}, {"frames": [{"locals": 3}]}, {"native_id": "x"}],
    ids=str,
)  # fmt: skip
def test_a_stack_that_makes_no_sense_is_left_out(observer, monkeypatch, stack):
    good = {"thread": "MainThread", "frames": [{"file": "train.py", "line": 3, "function": "main"}], "main": True}
    monkeypatch.setattr(Engines, "ask", lambda *_: {0: Looked(stacks=[stack, good])})
    stacks = observer.record().ranks[0].stacks
    assert stacks[-1].innermost.line == 3
    assert all(isinstance(frame.line, int) for each in stacks for frame in each.frames)


@pytest.mark.parametrize("stacks", [None, 7, "text", {"a": 1}], ids=str)
def test_stacks_that_make_no_sense_are_none(observer, monkeypatch, stacks):
    monkeypatch.setattr(Engines, "ask", lambda *_: {0: Looked(stacks=stacks)})
    assert observer.record().ranks[0].stacks == ()
