"""One probe of a command, as it runs: what it reads, and when it is over."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ddpnb.studies.bisection.command import Request
from ddpnb.studies.bisection.probing import CommandProber, Ran
from ddpnb.studies.bisection.space import Probe


def run(*command: str, **more: float) -> Ran:
    return CommandProber(Request(command, script=False, **more)).run(Probe())


def python(text: str, **more: float) -> Ran:
    return run(sys.executable, "-S", "-c", text, **more)


def test_a_program_fails_with_what_it_printed_last():
    ran = python("print('loading'); raise ValueError('no data')")
    assert (ran.ran, ran.reason, ran.finding) == (True, "ValueError: no data", None)
    (failure,) = ran.failures
    assert failure["code"] is None


def test_a_program_without_a_process_group_is_not_said_to_be_checked():
    ran = python("pass")
    assert (ran.failures, ran.reason) == ([], "no process group was made: nothing was checked")


def test_a_program_that_is_idle_without_a_process_group_hangs():
    ran = python("import time; time.sleep(300)", patience=0.5)
    (failure,) = ran.failures
    assert ran.reason == failure["summary"] == "all its processes are idle, and none has made a process group"


def test_a_probe_has_no_standard_input():
    text = (
        "import sys\n"
        "from ddpnb.studies.bisection.command import Request\n"
        "from ddpnb.studies.bisection.space import Probe\n"
        "from ddpnb.studies.bisection.probing import CommandProber\n"
        "program = 'import sys; sys.exit(7 if sys.stdin.read() else 0)'\n"
        "request = Request((sys.executable, '-S', '-c', program), script=False)\n"
        "print(CommandProber(request).run(Probe()).failures)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], input="yes\n", capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == "[]\n"


def test_a_program_that_does_not_exist():
    ran = run("no-such-program")
    assert not ran.ran
    assert "no-such-program" in ran.reason


@pytest.mark.parametrize(
    ("request_", "typed"),
    [
        (Request(("train.py",)), "ddpnb run -n 2 --end-after-patience train.py"),
        (Request(("torchrun", "t.py"), False), "ddpnb run --end-after-patience -- torchrun t.py"),
        (
            Request(("torchrun", "t.py"), False, backend="gloo", patience=30),
            "ddpnb run --backend gloo --patience 30 --end-after-patience -- torchrun t.py",
        ),
    ],
)
def test_a_probe_can_be_typed(request_, typed):
    assert CommandProber(request_).typed(Probe()) == typed
