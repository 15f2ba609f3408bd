"""The difference of two clocks, from looks that took some time."""

from __future__ import annotations

import random

import pytest

from ddpnb.ranks.remote.host_clock import HostClock

MS = 1_000_000
AHEAD = -170_000_000 * MS


def look(clock: HostClock, at: int, ahead: int, *, there: float = 1.0, back: float = 1.0, takes: float = 2.0) -> None:
    """A look that was sent at this moment, and its way there and back in milliseconds."""
    received = at + int(there * MS)
    answered = received + int(takes * MS)
    clock.add(at, received - ahead, answered - ahead, answered + int(back * MS))


def compared(ahead: int) -> HostClock:
    clock = HostClock()
    for number in range(5):
        look(clock, number * 40 * MS, ahead, there=1 + number, back=1)
    return clock


def test_the_fastest_look_counts_and_what_it_took_on_the_host_does_not():
    clock = HostClock()
    for number, there in enumerate([9, 1, 30, 4, 5]):
        assert not clock.known
        look(clock, number * 40 * MS, AHEAD, there=there, takes=500)
    assert clock.known and clock.ahead_ns == AHEAD


def test_slow_looks_change_nothing():
    clock = compared(AHEAD)
    ways = random.Random(1)
    for number in range(1000):
        look(clock, number * 40 * MS, AHEAD, there=ways.expovariate(0.05), back=ways.expovariate(0.05))
    assert (clock.ahead_ns, clock.corrections) == (AHEAD, 0)


@pytest.mark.parametrize("jump", [600_000 * MS, -600_000 * MS, 5 * MS])
def test_a_jump_is_seen_and_measured(jump):
    clock = compared(AHEAD)
    for number in range(10):
        look(clock, number * 40 * MS, AHEAD + jump)
    assert (clock.ahead_ns, clock.corrections) == (AHEAD + jump, 1)


def test_clocks_that_drift_apart_are_never_far_off():
    clock = compared(AHEAD)
    ways = random.Random(2)
    for number in range(20_000):  # 50 microseconds a second, for a quarter of an hour
        at = number * 40 * MS
        true = AHEAD + at // 20_000
        look(clock, at, true, there=ways.uniform(0.2, 4), back=ways.uniform(0.2, 4))
        assert abs(clock.ahead_ns - true) < 4 * MS
    assert 5 < clock.corrections < 100


def test_a_clock_that_is_changed_during_a_look_is_not_measured_by_it():
    clock = HostClock()
    clock.add(0, 1000 * MS, 500 * MS, 4 * MS)  # it answered before it was asked
    for number in range(5):
        look(clock, number * 40 * MS, AHEAD)
    assert clock.ahead_ns == AHEAD
