"""The clock of a recording."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

SHOW = "from time import monotonic_ns; from ddpnb.recorder.files import clock; print(clock.now_ns() - monotonic_ns())"


@pytest.mark.parametrize(
    ("value", "ahead"), [("3600000000000", 3600e9), ("-7200000000000", -7200e9), ("", 0), ("x", 0)]
)
def test_a_rank_dates_by_the_clock_of_its_launcher(value, ahead):
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**os.environ, "DDPNB_CLOCK_NS": value},
        capture_output=True,
        check=True,
        timeout=240,
    )
    assert abs(int(done.stdout) - ahead) < 1e9


def test_a_process_learns_late_that_its_launcher_is_on_another_host():
    """Modules that have imported the clock before then use it as it is now."""
    code = f"from ddpnb.recorder.files.clock import now_ns, set_ahead_ns; set_ahead_ns(3600 * 10**9); {SHOW}; print(now_ns())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "DDPNB_HOSTS": "x"},
        capture_output=True,
        check=True,
        timeout=240,
    )
    ahead, now = map(int, done.stdout.split())
    assert abs(ahead - 3600e9) < 1e9 and abs(now - time.monotonic_ns() - 3600e9) < 60e9


def test_without_another_host_it_is_the_clock_itself():
    from ddpnb.recorder.files import clock

    assert clock.now_ns is time.monotonic_ns
    assert (clock.of_launcher(1.5), clock.of_launcher_ns(7)) == (1.5, 7)


CORRECTED = """
import os
from time import monotonic_ns
from ddpnb.recorder.files import clock
from ddpnb.recorder.files.clock import now_ns  # as the door has it
clock.correct(5_000_000_000)
print(now_ns() - monotonic_ns(), clock.of_launcher(1.0), clock.of_launcher_ns(1), os.environ.get("DDPNB_CLOCK_NS"))
"""


@pytest.mark.parametrize(
    ("value", "shown"),
    [("7", "5 6.0 5000000001 5000000000"), ("0", "5 6.0 5000000001 5000000000"), (None, "0 1.0 1 None")],
)
def test_the_difference_is_corrected_where_there_is_another_host(value, shown):
    environment = {name: text for name, text in os.environ.items() if name != "DDPNB_CLOCK_NS"}
    environment |= {"DDPNB_CLOCK_NS": value} if value is not None else {}
    done = subprocess.run(
        [sys.executable, "-c", CORRECTED], env=environment, capture_output=True, check=True, timeout=240, text=True
    )
    ahead, *others = done.stdout.split()
    assert [str(round(int(ahead) / 1e9)), *others] == shown.split()
