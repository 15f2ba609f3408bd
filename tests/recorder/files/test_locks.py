"""A signal handler or ``__del__`` of the user's runs between any two lines of ours, and calls what a hook watches."""

from __future__ import annotations

import sys
import threading

from ddpnb.recorder.collectives import groups
from ddpnb.recorder.collectives.groups import Groups
from ddpnb.recorder.events import checkpoints
from ddpnb.recorder.events.checkpoints import checkpoint
from ddpnb.recorder.files import blackbox
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.models import samples
from ddpnb.recorder.models.samples import SampleFile
from ddpnb.recording import blackbox as layout
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events import Unknown
from ddpnb.recording.samples import SampleReader, contents


def interrupted_everywhere(work, interrupt, *modules):
    """Call ``work(number)`` again and again, interrupted by ``interrupt(number)`` before its line ``number`` in these modules.

    Returns the number of lines. It must end: a thread that waits for its own lock never does.
    """
    files = {module.__file__ for module in modules}
    lines = 0
    target = -1

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            lines += 1
            if lines == target + 1:
                interrupt(target)
        return trace

    def run():
        nonlocal lines, target
        most = 1
        while target < most:
            target += 1
            lines = 0
            sys.settrace(trace)
            try:
                work(target)
            finally:
                sys.settrace(None)
            most = max(most, lines)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), f"it waits since it was interrupted before line {target + 1}"
    return target


def made(name, **details):
    return Unknown(named=name, details=details)


def test_a_box_that_is_written_while_it_is_being_written(tmp_path):
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    reader = BoxReader(box.memory)
    box.set_run(1, layout.RUN_ACTIVE)
    written: list[int] = []

    def work(number):
        box.emit(made("epoch", number=number))
        event = box.begin(made("forward", number=number))
        box.end(event, made("forward", took=number))

    def interrupt(number):
        before = box._event_count
        box.emit(made("saved", interrupted=number))
        written.append(box._event_count - before)

    lines = interrupted_everywhere(work, interrupt, blackbox)
    assert lines > 50 and {0, 1} == set(written)
    found = [(event.title, event.state, dict(event.details)) for event in reader.events()]
    assert not any(name == "?" for name, _, _ in found)
    assert [facts for name, _, facts in found if name == "epoch"] == [{"number": n} for n in range(lines + 1)]
    assert [facts for name, _, facts in found if name == "forward"] == [
        {"number": n, "took": n} for n in range(lines + 1)
    ]
    assert all(state == "done" for _, state, _ in found)
    assert sum(name == "saved" for name, _, _ in found) == sum(written)


def test_a_run_that_begins_while_the_box_is_written(tmp_path):
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    reader = BoxReader(box.memory)

    def work(number):
        box.set_run(number + 1, layout.RUN_ACTIVE)
        box.emit(made("epoch", number=number))
        assert [dict(event.details) for event in reader.events() if event.title == "epoch"] == [{"number": number}]

    interrupted_everywhere(work, lambda number: box.emit(made("saved", interrupted=number)), blackbox)


def test_a_checkpoint_inside_of_a_checkpoint(tmp_path, monkeypatch, capsys):
    counter = checkpoints._Counter()
    monkeypatch.setattr(checkpoints, "_counter", counter)
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    box.set_run(1, layout.RUN_ACTIVE)
    checkpoints.record_in(box)
    lines = interrupted_everywhere(
        lambda number: checkpoint(f"outer {number}"),
        lambda number: checkpoint(f"inner {number}"),
        checkpoints, blackbox,
    )  # fmt: skip
    assert lines > 40
    printed = dict(
        line.strip().rpartition(" CHECKPOINT ")[2].split(": ")
        for line in capsys.readouterr().out.splitlines()
    )  # fmt: skip
    assert set(printed) == {str(number) for number in range(1, next(counter.numbers))}
    recorded = {str(event.number): event.name for event in BoxReader(box.memory).events()}
    assert recorded.items() <= printed.items()
    assert {f"outer {number}" for number in range(lines + 1)} <= {*recorded.values()}


def test_samples_that_are_written_while_one_is_being_written(tmp_path):
    file = SampleFile(str(tmp_path / "rank0.samples"))
    file.new_run(1)
    lines = interrupted_everywhere(
        lambda number: file.write(0, "forward", number, 0, 0, 0),
        lambda number: file.write(0, "backward", number, 0, 0, 0),
        samples,
    )
    rows = SampleReader(file._memory, {}.get).new_rows(1)
    turns = [contents(row)[0] for row in rows]
    assert [turn for _, kind, turn in turns if kind == "forward"] == list(range(lines + 1))
    assert 0 < sum(kind == "backward" for _, kind, _ in turns) < lines


class GroupOfTwo:
    group_name = "0"

    def size(self):
        return 2

    def rank(self):
        return 0


def test_a_group_that_is_used_while_it_is_introduced(tmp_path):
    """Its calls are counted once: a peer that was not interrupted counts the same."""
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    known = Groups(box, str(tmp_path), "raise")
    made: list[GroupOfTwo] = [GroupOfTwo()]
    counted: list[int] = []

    def work(_number):
        introduced = known.get(made[-1])
        assert introduced is known.get(made[-1])
        counted.append(introduced.next_seq())
        assert introduced.identity.ordinal == len(made) - 1
        made.append(GroupOfTwo())

    def interrupt(_number):
        counted.append(known.get(made[-1]).next_seq())

    interrupted_everywhere(work, interrupt, groups)
    assert counted[:-1] == [1, 2] * (len(counted) // 2)
