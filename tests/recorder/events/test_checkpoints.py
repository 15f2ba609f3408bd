"""Numbered checkpoints: the line that each rank prints, in processes that nobody records."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch

import ddpnb
from ddpnb import checkpoint
from ddpnb.recorder.events import checkpoints
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording import blackbox as layout
from ddpnb.recording.blackbox import BoxReader

LINE = re.compile(
    r"\[\d\d:\d\d:\d\d\.\d{3}\]\[\+(\d+\.\d{3})s\]\[R(.+)/(.+)\]\[LR(.+)\]\[PID (\d+)\] CHECKPOINT (\d+): (.*)\n"
)
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def run(script, **environment):
    """The output of a script in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True, text=True, timeout=240, check=True, env={**clean, **environment},
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def fresh(monkeypatch):
    """A process that has not passed a checkpoint."""
    monkeypatch.setattr(checkpoints, "_counter", checkpoints._Counter())
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def box(tmp_path, fresh):
    return BlackBox(str(tmp_path / "rank0.box"), 0)


def recorded(box):
    return [(event.number, event.name) for event in BoxReader(box.memory).events()]


def test_plain_python_without_a_group():
    script = "from ddpnb import checkpoint\ncheckpoint('start')\ncheckpoint('Trainer ready')"
    lines = [LINE.fullmatch(line) for line in run(script).splitlines(keepends=True)]
    assert [line.groups()[1:4] for line in lines] == [("0", "1", "0")] * 2
    assert [line.groups()[5:] for line in lines] == [("1", "start"), ("2", "Trainer ready")]
    assert all(0 < float(line[1]) < 60 for line in lines)


def test_nothing_else_is_imported():
    script = "import sys, ddpnb; ddpnb.checkpoint('a'); print(*sys.modules)"
    loaded = set(run(script).splitlines()[1].split())
    ours = {name for name in loaded if name.startswith("ddpnb.")}
    assert ours - {"ddpnb.recording", "ddpnb.recording.writers"} == {
        "ddpnb.private_builtins",
        "ddpnb.recorder",
        "ddpnb.recorder.events",
        "ddpnb.recorder.events.checkpoints",
    }
    assert "torch" not in loaded


def test_what_torchrun_sets():
    line = run("import ddpnb; ddpnb.checkpoint('a')", RANK="3", WORLD_SIZE="8", LOCAL_RANK="1")
    assert LINE.fullmatch(line).groups()[1:4] == ("3", "8", "1")


def test_what_is_not_known_is_shown_so():
    assert LINE.fullmatch(run("import ddpnb; ddpnb.checkpoint('a')", SLURM_PROCID="1")).groups()[1:4] == ("?",) * 3
    line = run("import ddpnb; ddpnb.checkpoint('a')", RANK="two", WORLD_SIZE="2")
    assert LINE.fullmatch(line).groups()[1:4] == ("?", "2", "?")


@pytest.mark.usefixtures("fresh", "alone")
def test_the_group_knows_the_rank(monkeypatch, capsys):
    monkeypatch.setenv("SLURM_PROCID", "5")
    ddpnb.checkpoint("a")
    assert LINE.fullmatch(capsys.readouterr().out).groups()[1:4] == ("0", "1", "?")


def test_a_forked_process_counts_its_own():
    script = """
import os, ddpnb
ddpnb.checkpoint("a")
if os.fork():
    os.wait()
    ddpnb.checkpoint("b")
else:
    ddpnb.checkpoint("c")
    os._exit(0)
"""
    found = sorted(LINE.fullmatch(line).groups()[4:] for line in run(script).splitlines(keepends=True))
    assert sorted((number, name) for _, number, name in found) == [("1", "a"), ("1", "c"), ("2", "b")]
    assert len({pid for pid, _, _ in found}) == 2


@pytest.mark.usefixtures("fresh")
def test_torch_compile_passes_it(capsys):
    def step(x):
        y = x + 1
        ddpnb.checkpoint("in step")
        return y * 2

    torch.compile(step, backend="eager")(torch.ones(1))
    assert LINE.fullmatch(capsys.readouterr().out)[7] == "in step"


class Unprintable:
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (3, "3"),
        (None, "None"),
        ("é ✓", "é ✓"),
        ("a\x1b[31m\nb\r", r"a\x1b[31m\nb\r"),
        ("\ud800", r"\ud800"),
        ("x" * 10**6, "x" * 200),
        (Unprintable(), "<Unprintable: str() raised ValueError>"),
    ],
)
def test_any_name_is_one_line(fresh, capsys, name, shown):
    checkpoint(name)
    assert LINE.fullmatch(capsys.readouterr().out)[7] == shown


def test_it_is_one_write(fresh, monkeypatch):
    written = []

    class Stream:
        def write(self, text):
            written.append(text)

        def flush(self):
            written.append("flushed")

    monkeypatch.setattr(sys, "stdout", Stream())
    checkpoint("a")
    assert len(written) == 2 and written[0].endswith("CHECKPOINT 1: a\n") and written[1] == "flushed"


@pytest.mark.parametrize("stdout", [None, "closed", "ascii"])
def test_it_never_raises(fresh, monkeypatch, tmp_path, stdout):
    with open(tmp_path / "out", "w", encoding="ascii") as file:
        if stdout == "closed":
            file.close()
        monkeypatch.setattr(sys, "stdout", None if stdout is None else file)
        checkpoint("é")
    assert (r"1: \xe9" in (tmp_path / "out").read_text()) == (stdout == "ascii")


def test_those_before_the_recorder_are_recorded_too(box):
    for number in range(100):
        checkpoint(f"early {number}")
    box.set_run(1, layout.RUN_ACTIVE)
    checkpoints.record_in(box)
    checkpoint("late")
    assert recorded(box) == [*((number + 1, f"early {number}") for number in range(64)), (101, "late")]


def test_each_run_of_an_engine_counts_from_one(box, capsys):
    checkpoints.record_in(box)
    for run_number in (1, 2):
        box.set_run(run_number, layout.RUN_ACTIVE)
        checkpoints.new_run()
        checkpoint("a")
        checkpoint("b")
        assert recorded(box) == [(1, "a"), (2, "b")]
    assert all(float(LINE.fullmatch(line)[1]) < 1 for line in capsys.readouterr().out.splitlines(keepends=True))


def test_a_loop_does_not_fill_the_box(box):
    """Nor does it take the place of other events, or of the strings of calls."""
    box.set_run(1, layout.RUN_ACTIVE)
    checkpoints.record_in(box)
    checkpoint("first")
    before = layout.STATUS.unpack_from(box.memory, layout.STATUS_AT)[:2]
    for number in range(2, 5001):
        checkpoint(f"step {number}")
    used, events = layout.STATUS.unpack_from(box.memory, layout.STATUS_AT)[:2]
    assert used - before[0] < 300 and events == before[1]
    found = recorded(box)
    assert found[:2] == [(1, "first"), (2, "step 2")] and found[-1] == (5000, "step 5000")
    assert [number for number, _ in found] == [*range(1, 65), *range(5001 - 192, 5001)]


def test_where_it_is_called(box):
    box.set_run(1, layout.RUN_ACTIVE)
    checkpoints.record_in(box)
    checkpoint("here")
    (event,) = BoxReader(box.memory).events()
    assert (event.site.file, event.site.function) == (__file__, "test_where_it_is_called")


def test_a_forked_child_leaves_the_box_alone(box):
    box.set_run(1, layout.RUN_ACTIVE)
    checkpoints.record_in(box)
    box.silence()
    checkpoint("in a worker")
    assert recorded(box) == []
