"""Of a report: where ranks were before a time-out, a launcher or Ctrl-C ended them."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from typing import TypeGuard

from ddpnb.recording.calls import CallState
from ddpnb.recording.ending import UNKNOWN_SIGNAL, UNKNOWN_STATUS, Ending
from ddpnb.recording.facts.endings import is_stale_store
from ddpnb.recording.facts.stack_calls import START, call_in
from ddpnb.recording.messages.explain import explain
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.stacks import Stack

# How a rank fails that has waited too long, or whose peer has failed; and the messages that contain the calls themselves.
_OUT_OF_TIME = r"watchdog|tim(?:ed?|e-) ?out|Detected mismatch between collectives"
_WAITED_TOO_LONG = re.compile(_OUT_OF_TIME, re.IGNORECASE)
_TIMED_OUT = re.compile(
    rf"{_OUT_OF_TIME}|connection (?:was )?(?:closed|reset|refused|aborted)|broken pipe|ncclRemoteError|remote process"
    r"|NCCL communicator was aborted",
    re.IGNORECASE,
)
_BY_TIME_OUT = frozenset(
    {-signal.SIGABRT, -signal.SIGTERM, -signal.SIGKILL, 1, 128 + signal.SIGABRT, 128 + signal.SIGTERM, UNKNOWN_STATUS}
)
_STOPPED = (-signal.SIGTERM, -signal.SIGINT, UNKNOWN_SIGNAL)


def stopped_by_signal(ending: Ending) -> bool:
    """Whether a signal ended a process that a launcher, or Ctrl-C, may have sent."""
    return ending.how != "raised" and ending.code in _STOPPED


def while_waiting(recording: Recording) -> Recording:
    """The same as it was before time-outs or Ctrl-C ended ranks: how these ended follows from what they waited for.

    A rank that the report shows in a call, and that was ended by the time-out of this call or by a peer that failed, counts
    as waiting. One that a launcher stopped because another had failed, or once its stacks were taken, counts as it was
    before.
    """
    if recording.report is None:
        return recording
    failed = any(
        (ending := record.ending) is not None and not ending.well and not stopped_by_signal(ending)
        for record in recording.ranks.values()
    )
    interrupted = interrupted_while_waiting(recording)
    # A connection that was lost is the stack of a hang only where others waited too long.
    ends = [ending.message[:20_000] for record in recording.ranks.values() if (ending := record.ending) is not None]
    waited = _TIMED_OUT if any(map(_WAITED_TOO_LONG.search, ends)) else _WAITED_TOO_LONG
    return replace(
        recording,
        ranks={rank: _while_waiting(record, failed, interrupted, waited) for rank, record in recording.ranks.items()},
    )


def interrupted_while_waiting(recording: Recording) -> bool:
    """Whether Ctrl-C ended the job while a rank was in a collective: the tracebacks are then stacks of that moment."""
    interrupted = [(record, ending) for record in recording.ranks.values() if _interrupted(ending := record.ending)]
    return any(_waits(record) or call_in(_traceback(ending)) for record, ending in interrupted)


def _waits(record: RankRecord) -> bool:
    return any(call.state is CallState.WAITING for call in record.calls)


def _interrupted(ending: Ending | None) -> TypeGuard[Ending]:
    return ending is not None and ending.how == "raised" and ending.exception == "KeyboardInterrupt"


def _traceback(ending: Ending) -> Stack:
    return Stack("MainThread", ending.frames, main=True)


def _while_waiting(record: RankRecord, failed: bool, interrupted: bool, waited: re.Pattern[str]) -> RankRecord:
    ending = record.ending
    if ending is None:
        return record
    if interrupted and _interrupted(ending):
        return _as_shown(record, ending, "idle" if call_in(_traceback(ending)) else "computing")
    if _waits(record) and _by_time_out(ending):
        return replace(record, ending=None)
    # Its stacks are older than its end: somebody looked at a job that hung, and stopped it then.
    if stopped_by_signal(ending) and (failed or record.stacks):
        return replace(record, ending=None)
    if ending.how == "raised" and waited.search(ending.message[:20_000]) and (call := call_in(_traceback(ending))):
        said = record.calls or is_stale_store(ending) or (call == START and _says_who_joined(ending))
        return record if said else _as_shown(record, ending, "idle")
    return record


def _says_who_joined(ending: Ending) -> bool:
    """Whether the time-out of a start tells more than the line: how many ranks joined, or which did not."""
    return explain(ending.message, ending.exception, frames=ending.frames) is not None


def _as_shown(record: RankRecord, ending: Ending, activity: str) -> RankRecord:
    """A rank where its last traceback shows it."""
    if record.calls or record.stacks:
        return replace(record, ending=None)
    process = replace(record.process, activity=activity)
    return replace(record, ending=None, unrecorded=True, stacks=(_traceback(ending),), process=process)


def _by_time_out(ending: Ending) -> bool:
    if ending.how == "raised":
        return _TIMED_OUT.search(ending.message[:20_000]) is not None
    return not ending.well and ending.code in _BY_TIME_OUT
