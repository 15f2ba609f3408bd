"""How children end that ``multiprocessing`` started, as their parent writes it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.popen_fork import Popen

import pytest

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
