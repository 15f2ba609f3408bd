"""One probe of a command, as it runs: what it reads, and when it is over."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ddpnb.bisection.varied import Trying
from ddpnb.control.probing import Job, Prober
from ddpnb.errors import UsageError

COMMAND = Job(script=False)


def python(text: str) -> Trying:
    return Trying((sys.executable, "-S", "-c", text))


def test_a_program_fails_with_what_it_printed_last():
    ran = Prober(COMMAND).run(python("print('loading'); raise ValueError('no data')"))
    assert (ran.ran, ran.reason, ran.finding) == (True, "ValueError: no data", None)
    (failure,) = ran.failures
    assert failure.code is None


def test_a_program_without_a_process_group_is_not_said_to_be_checked():
    ran = Prober(COMMAND).run(python("pass"))
    assert (ran.failures, ran.reason) == ((), "no process group was made: nothing was checked")


def test_a_program_that_is_idle_without_a_process_group_hangs():
    ran = Prober(Job(script=False, patience=0.5)).run(python("import time; time.sleep(300)"))
    (failure,) = ran.failures
    assert ran.reason == failure.summary == "all its processes are idle, and none has made a process group"


def test_a_probe_has_no_standard_input():
    text = (
        "import sys\n"
        "from ddpnb.bisection.varied import Trying\n"
        "from ddpnb.control.probing import Job, Prober\n"
        "program = 'import sys; sys.exit(7 if sys.stdin.read() else 0)'\n"
        "print(Prober(Job(script=False)).run(Trying((sys.executable, '-S', '-c', program))).failures)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], input="yes\n", capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "()\n"


def test_a_program_that_does_not_exist():
    ran = Prober(COMMAND).run(Trying(("no-such-program",)))
    assert not ran.ran
    assert "no-such-program" in ran.reason


@pytest.mark.parametrize("jobs", [0, -1, 65])
def test_a_number_of_jobs_that_makes_no_sense_is_refused(jobs):
    with pytest.raises(UsageError, match="jobs"):
        Job(jobs=jobs)


def test_the_options_with_which_a_probe_can_be_typed():
    assert Prober(Job(size=2)).options(Trying(("train.py",))) == ["-n", "2", "--end-after-patience"]
    assert Prober(Job(script=False)).options(Trying(("torchrun",))) == ["--end-after-patience"]
    assert Prober(Job(script=False, backend="gloo", patience=30)).options(Trying(("torchrun",))) == [
        "--backend", "gloo", "--patience", "30", "--end-after-patience",
    ]  # fmt: skip
