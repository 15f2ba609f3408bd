"""Collectives whose calls do not match, and whether the program caught that."""

from __future__ import annotations

from ddpnb.recording.calls import Call, CallState
from ddpnb.recording.collectives import Collective, collectives
from ddpnb.recording.facts.once import once
from ddpnb.recording.recording import RankRecord, Recording


@once
def first_mismatch(recording: Recording) -> Collective | None:
    """The earliest recorded collective whose calls do not match, of those that the program did not expect."""
    return min((c for c in _mismatches(recording) if not expected(recording, c)), key=_began, default=None)


@once
def fatal_mismatch(recording: Recording) -> Collective | None:
    """The earliest one that has failed or blocked a rank: of gloo, a rank that is sent less than it expects continues."""
    found = (c for c in _mismatches(recording) if not c.completed and not expected(recording, c))
    return min(found, key=_began, default=None)


def raised_in(record: RankRecord, call: Call) -> bool:
    """Whether a call raised what ended a rank: not what the rank had raised before, and makes the call while it handles that."""
    ending = record.ending
    if ending is None or ending.how != "raised" or _HANDLED in ending.traceback:
        return False
    frame = ending.innermost_user
    at_call = call.state.in_flight and frame is not None and frame.site == call.site
    return at_call or call.state is CallState.FAILED


_HANDLED = "During handling of the above exception"


def expected(recording: Recording, collective: Collective) -> bool:
    """Whether the calls raised an exception, the program caught that, and all its ranks have continued since."""
    return any(call.state in _RAISED for call in collective.calls.values()) and all(
        _continued(recording.ranks[rank], call) for rank, call in collective.calls.items()
    )


def caught(recording: Recording) -> Collective | None:
    """The first mismatch that the program caught."""
    return min((c for c in _mismatches(recording) if expected(recording, c)), key=_began, default=None)


_RAISED = (CallState.FENCED, CallState.FAILED, CallState.REFUSED)


@once
def _mismatches(recording: Recording) -> list[Collective]:
    every = (collective for group in collectives(recording).values() for collective in group.values())
    return [collective for collective in every if collective.mismatched]


def _began(collective: Collective) -> int:
    return collective.began_ns


def _continued(record: RankRecord, call: Call) -> bool:
    """Whether a rank has made another call since, or its script has ended as it was meant to."""
    later = bool(record.calls) and record.calls[-1].number > call.number
    return record.ending.well if record.ending is not None else later
