"""What is said of processes of a world that end before it is up, or cannot be started."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from types import SimpleNamespace

import pytest

from ddpnb.errors import LaunchError
from ddpnb.ranks.engines.engines import Engines
from ddpnb.ranks.exit_reasons import cannot_start, end_of, tail
from ddpnb.recording.protocol import FOLDER

INTERRUPT = """Traceback (most recent call last):
  File "ddpnb/ranks/engines/child.py", line 53, in main
    from ddpnb.recorder import rank
KeyboardInterrupt
"""


@pytest.fixture
def process(tmp_path):
    """Gives the log of a process."""

    def made(text):
        (tmp_path / "log").write_text(text)
        return str(tmp_path / "log")

    return made


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (1, "exited with status 1"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-(signal.SIGRTMIN + 3), f"was killed by signal {signal.SIGRTMIN + 3}"),
        (None, "ended"),
    ],
)
def test_how_a_process_ended(process, status, how):
    assert end_of(process("torch is imported\n"), status) == how


@pytest.mark.parametrize("status", [-signal.SIGINT, 1, None])
def test_the_traceback_of_an_interrupt_is_not_shown(process, status):
    """It leads through whatever the process imported just then: that tells a user nothing."""
    assert end_of(process(INTERRUPT), status) == "was killed by SIGINT"
    assert tail(process(INTERRUPT)) == ""


def test_the_end_of_another_log_is_shown(process):
    log = "".join(f"line {number}\n" for number in range(20)) + "OSError: no such device\n"
    assert tail(process(log)).splitlines()[-1].strip() == "OSError: no such device"
    assert "line 5" not in tail(process(log))
    assert tail(process("")) == "" == tail("/nowhere/log")


def test_what_the_system_refuses_is_said_with_what_to_look_at():
    said = str(cannot_start(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")))
    assert "could not be started: Resource temporarily unavailable." in said and "ulimit -u" in said
    assert "can't start new thread" in str(cannot_start(RuntimeError("can't start new thread")))


def test_ranks_that_are_late_are_named_with_what_waits_longer():
    engines = Engines(SimpleNamespace(check_controller=lambda: None, connection="up"))
    with pytest.raises(
        LaunchError, match=r"ranks 0, 1 and 2: did not register in time\.(.|\n)*restart\(\) a longer timeout="
    ):
        engines._check_starting([0, 1, 2], 0.0, "did not register")


def test_a_process_that_has_got_the_number_of_a_rank_is_left_alone(tmp_path):
    """The rank has ended and was waited for; its number is free for any process of the machine."""
    another = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        engines = Engines.__new__(Engines)
        engines._pids, engines._exits, engines._killed = {0: another.pid}, {0: 0}, set()
        engines._owner, engines._environments = os.getpid(), {0: {FOLDER: str(tmp_path)}}
        engines.kill(0)
        with pytest.raises(subprocess.TimeoutExpired):
            another.wait(0.3)
        engines._exits = {}
        engines.kill(0)
        assert another.wait(60) == -signal.SIGKILL
    finally:
        another.kill()
        another.wait(60)
