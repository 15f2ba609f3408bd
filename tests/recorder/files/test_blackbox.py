"""The writer of black boxes: its table of strings, which begins again with each run."""

from __future__ import annotations

import os
import threading

import pytest

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording import blackbox as layout
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.calls import NO_SITE, Group, Signature
from ddpnb.recording.events.data import DataLoop, SamplerPass
from ddpnb.recording.events.startup import Environment, StoreOpened
from ddpnb.recording.strings import GENERATIONS, STRING_LIMIT


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "rank0.box")


@pytest.fixture
def box(path):
    return BlackBox(path, 0)


def used(box):
    return layout.STATUS.unpack_from(box.memory, layout.STATUS_AT)[0]


def call(box, string):
    """A call whose group, signature and site are this string."""
    number = box.next_call()
    at = layout.CALLS_AT + number % layout.CALLS * layout.CALL_SIZE
    layout.CALL.pack_into(box.memory, at, number + 1, string, 1, string, string, 1, 0, -1, 0, 0, 0, 1, 0, 0)
    layout.PROGRESS.pack_into(box.memory, layout.PROGRESS_AT, number + 1, 1)


def test_all_of_its_space_is_allocated(path, box):
    """A rank that touches a page of a sparse file on a full /dev/shm is killed by SIGBUS."""
    assert os.stat(path).st_blocks * 512 >= layout.BOX_SIZE


def test_each_run_begins_with_an_empty_table(box):
    """It grew by 783 bytes with each run, and each run read it from its beginning."""
    sizes = []
    for run in range(1, 6):
        box.set_run(run, layout.RUN_ACTIVE)
        box.emit(Environment(variables={"run": run, "RANK": "0"}))
        box.set_run(run, layout.RUN_ENDED)
        sizes.append(used(box))
    assert len(set(sizes)) == 1


def test_each_run_counts_its_own_steps(box):
    for run in (1, 2):
        box.set_run(run, layout.RUN_ACTIVE)
        box.forward()
        for _ in range(3):
            box.step()
        status = BoxReader(box.memory).status
        assert (box.steps, status.steps, status.forwards) == (3, 3, 1)
        box.set_run(run, layout.RUN_ENDED)


def test_a_run_that_is_over_can_be_read_until_the_next_begins(box):
    reader = BoxReader(box.memory)
    box.set_run(1, layout.RUN_ACTIVE)
    box.emit(Environment(variables={"RANK": "0"}))
    box.set_run(1, layout.RUN_ENDED)
    assert [event.title for event in reader.events()] == ["environment"]
    assert [event.title for event in BoxReader(box.memory).events()] == ["environment"]


def test_a_number_of_an_earlier_run_means_nothing_in_a_later_one(box):
    """A thread that an earlier run has left behind may still use it."""
    box.set_run(1, layout.RUN_ACTIVE)
    stale = box.intern({"op": "barrier", "file": "old.py", "ranks": [0]})
    before = BoxReader(box.memory)
    call(box, stale)
    assert before.calls()[0].site.file == "old.py"
    box.set_run(2, layout.RUN_ACTIVE)
    fresh = box.intern({"op": "all_reduce", "file": "new.py", "ranks": [1]})
    assert fresh != stale
    call(box, stale)
    call(box, fresh)
    for reader in (before, BoxReader(box.memory)):
        old, new = reader.calls()
        assert new.site.file == "new.py" and new.signature.op == "all_reduce" and new.group.ranks == (1,)
        assert old.site.file in ("?", "old.py")
    assert (old.site, old.signature, old.group) == (NO_SITE, Signature("?"), Group(()))


def test_whoever_keeps_numbers_is_called_when_they_are_void(box):
    known = {}
    box.on_new_table.append(known.clear)
    known["here"] = box.intern({"file": "a.py"})
    box.set_run(1, layout.RUN_ACTIVE)
    assert known == {}
    known["here"] = box.intern({"file": "a.py"})
    box.set_run(1, layout.RUN_ENDED)
    assert BoxReader(box.memory).string(known["here"]) == {"file": "a.py"}


def test_many_generations(box):
    box._generation = GENERATIONS - 2
    reader = BoxReader(box.memory)
    for run in range(1, 6):
        box.set_run(run, layout.RUN_ACTIVE)
        number = box.intern({"run": run})
        assert 0 < number < 1 << 32
        assert reader.string(number) == {"run": run}


def test_a_full_table_is_counted_and_said(box):
    box.set_run(1, layout.RUN_ACTIVE)
    reader = BoxReader(box.memory)
    filler = "x" * (STRING_LIMIT - 100)
    for number in range(layout.STRINGS_SIZE // len(filler)):
        assert reader.dropped == 0
        box.intern({"filler": filler, "number": number})
    while box.intern({"last": used(box)}):
        pass
    dropped = reader.dropped
    assert dropped >= 1
    box.emit(Environment(variables={"RANK": "0"}))
    assert reader.dropped == dropped + 2  # its name and its facts
    assert reader.events()[-1].title == "?"
    box.set_run(2, layout.RUN_ACTIVE)
    box.emit(Environment(variables={"RANK": "0"}))
    assert reader.dropped == 0
    assert reader.events()[-1].title == "environment"


def test_a_text_that_is_too_long_is_cut_and_takes_its_place_once(box):
    first = box.intern({"text": "y" * (1 << 20)})
    size = used(box)
    assert box.intern({"text": "y" * (1 << 20)}) == first
    assert used(box) == size < STRING_LIMIT
    assert set(BoxReader(box.memory).string(first)) == {"truncated"}


def test_readers_that_race_with_new_runs_never_mix_strings(box):
    """Each string says of which run it is, and so does the number of steps of the record that refers to it."""
    stop, wrong = threading.Event(), []

    def read():
        reader = BoxReader(box.memory)
        while not stop.is_set():
            for one in reader.calls(64):
                told = one.site.line
                if told and told != one.seq:
                    wrong.append((told, one.seq))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    try:
        for run in range(1, 150):
            box.set_run(run, layout.RUN_ACTIVE)
            for place in range(20):
                string = box.intern({"file": f"{place}.py", "line": run, "function": "f" * (run % 7)})
                number = box.next_call()
                at = layout.CALLS_AT + number % layout.CALLS * layout.CALL_SIZE
                layout.CALL.pack_into(box.memory, at, number + 1, 0, run, 0, string, 4, 0, -1, 0, 0, 0, 1, 1, 1)
                layout.PROGRESS.pack_into(box.memory, layout.PROGRESS_AT, number + 1, 1)
            box.set_run(run, layout.RUN_ENDED)
    finally:
        stop.set()
        for thread in readers:
            thread.join(30)
    assert not wrong


def test_a_forked_child_writes_nothing(box):
    """It shares the memory: what it writes stands in its parent's box."""
    box.set_run(1, layout.RUN_ACTIVE)
    event = box.begin(DataLoop())
    before = bytes(box.memory)
    box.silence()
    box.emit(SamplerPass(shuffle=True))
    box.end(box.begin(StoreOpened()))
    box.end(event, DataLoop(batches=3))
    assert box.intern({"never": "seen"}) == 0
    box.step()
    box.forward()
    box.set_run(2, layout.RUN_ACTIVE)
    assert bytes(box.memory) == before
