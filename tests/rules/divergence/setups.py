"""Jobs whose ranks set up their models, hooks and optimizers."""

from __future__ import annotations

from ddpnb.rules.causes.different_calls import SETUPS
from ddpnb.rules.rule import findings_of
from tests.rules.recordings import Rank, diagnose, line, record

WRAPPED = line(3)
STEP = line(9)


def recorded(make, world=4, script=None):
    """``make(rank)`` sets each rank up; then all train."""
    return record(*(make(Rank(number, world)).trains(1, STEP).finishes() for number in range(world)), script=script)


def some(culprits, odd, usual):
    return lambda rank: odd(rank) if rank.rank in culprits else usual(rank)


def others(culprits, world=4):
    return tuple(number for number in range(world) if number not in culprits)


def wraps(*tensors, **more):
    return lambda rank: rank.wraps(*tensors, at=WRAPPED, **more)


def found_in(recording):
    return [found for rule in SETUPS for found in findings_of(recording, rule)]


def the_finding(recording):
    (found,) = found_in(recording)
    assert found.severity == "error"
    assert found.summary and found.remedy
    assert diagnose(recording).findings[0].code == found.code
    return found
