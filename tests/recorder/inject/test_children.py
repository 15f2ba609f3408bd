"""How children end that ``multiprocessing`` started, as their parent writes it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from multiprocessing.popen_fork import Popen
from types import SimpleNamespace

import pytest
from torch.multiprocessing.spawn import ProcessRaisedException

from ddpnb.ranks.jobs.job_processes import Identity, JobProcesses
from ddpnb.recorder.inject import children
from ddpnb.recording import protocol


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """Runs a function in a child and waits for it; returns its process ID."""
    monkeypatch.setattr(Popen, "poll", Popen.poll)  # put back after the test

    def ended(function, *args, is_rank=False):
        children.note_ends(str(tmp_path), lambda: is_rank)
        process = multiprocessing.get_context("fork").Process(target=function, args=args)
        process.start()
        process.join(60)
        return process.pid

    return ended


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize(("function", "args", "status"), [(die, (), -signal.SIGKILL), (os._exit, (7,), 7)])
def test_the_status_of_a_child_is_written(ended, tmp_path, function, args, status):
    pid = ended(function, *args)
    assert os.listdir(tmp_path) == [f"exit-{pid}"]
    assert JobProcesses(str(tmp_path / "start-0"))._of_parent(Identity(0, pid, 1)) == status


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_children_of_ranks_are_no_ranks(ended, tmp_path):
    ended(os._exit, 0, is_rank=True)
    assert os.listdir(tmp_path) == []


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_folder_that_is_gone_is_no_matter(ended, tmp_path):
    tmp_path.rmdir()
    assert ended(os._exit, 0)


@pytest.mark.parametrize("text", ["", "-", "nine", "9" * 5000, "\0"])
def test_what_is_no_status_is_none(tmp_path, text):
    (tmp_path / "exit-41").write_text(text)
    assert JobProcesses(str(tmp_path / "start-0"))._of_parent(Identity(0, 41, 1)) is None
    assert protocol.exit_file(str(tmp_path), 41) == str(tmp_path / "exit-41")


def test_a_wait_that_is_interrupted_shows_the_programs_frames_alone(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Popen, "poll", interrupted)
    children.note_ends(str(tmp_path), lambda: False)
    with pytest.raises(KeyboardInterrupt) as caught:
        Popen.poll(SimpleNamespace(returncode=None))
    assert [entry.name for entry in caught.traceback][1:] == ["interrupted"]


@pytest.fixture
def noting(tmp_path, monkeypatch):
    """What processes raise is noted in this test."""
    monkeypatch.setattr(ProcessRaisedException, "__init__", ProcessRaisedException.__init__)
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)
    children.note_exceptions(str(tmp_path), lambda: False)


def handle():
    try:
        die_of({})
    except KeyError:
        traceback.print_exc()


def die_of(table):
    return table["shard"]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize(("function", "args", "noted"), [(die_of, ({},), True), (handle, (), False)])
def test_what_a_process_of_multiprocessing_raises_is_written_if_nothing_catches_it(
    ended, noting, tmp_path, capfd, function, args, noted
):
    pid = ended(function, *args)
    assert os.path.exists(protocol.raised_file(str(tmp_path), pid)) == noted
    shown = capfd.readouterr().err
    assert "KeyError: 'shard'" in shown and "children.py" not in shown.replace(__file__, "")


def test_what_a_process_has_raised_that_was_to_be_the_only_missing_rank(tmp_path, monkeypatch, noting):
    said = '\n\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n  File "/x/train.py", line 7, in main\n    load()\nKeyError: 1\n'
    assert ProcessRaisedException(said, 1, 41).error_pid == 41

    def ending(*ranks, size=2, rank=1):
        folder = tmp_path / f"start-{len(ranks)}-{size}"
        folder.mkdir(exist_ok=True)
        processes = JobProcesses(str(folder))
        monkeypatch.setattr(
            processes, "found", lambda: {n: Identity(n, 50 + n, size, parent=(os.getpid(), 1)) for n in ranks}
        )
        return processes.before_joining(rank)

    found = ending(0)
    assert (found.how, found.exception, found.message, found.frames[-1].line) == ("raised", "KeyError", "1", 7)
    assert found.at_ns
    assert ending(0, size=3) is None  # two are missing
    assert ending(0, rank=0) is None and ending(0, 1) is None and ending() is None
    (tmp_path / "raised-42").write_text((tmp_path / "raised-41").read_text())
    assert ending(0) is None  # it is not known which of them was to be that rank
    (tmp_path / "raised-42").write_text("[" * 100_000)
    assert ending(0) == found
