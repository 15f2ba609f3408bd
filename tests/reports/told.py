"""Facts as formats find them, in few words, and what is made of them."""

from __future__ import annotations

from typing import Any

from ddpnb.recording.calls import CallState, Signature
from ddpnb.recording.ending import Ending
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.reports.facts import CallSeen, Ended, Fact, Found, GroupName, Progress, Speaker, WorldSize
from ddpnb.reports.together import recording
from ddpnb.rules.diagnose import diagnose

WORLD = GroupName("0", "default_pg")


def signature(op: str, elements: int = 1024, dtype: str = "") -> Signature:
    return Signature(op, ((elements,),), (dtype,) if dtype else ())


def waits(rank: int, seq: int, op: str = "all_reduce", elements: int = 1024, **more: Any) -> CallSeen:
    """A rank whose call timed out after ten minutes."""
    facts: dict[str, Any] = {"group": WORLD, "waited_s": 600.0, "timeout_s": 600.0} | more
    group = facts.pop("group")
    return CallSeen(Speaker(rank), group, seq, signature(op, elements), CallState.WAITING, **facts)


def progress(rank: int, enqueued: int, completed: int, group: GroupName = WORLD) -> Progress:
    return Progress(Speaker(rank), group, enqueued=enqueued, completed=completed)


def died(rank: int, code: int, root: bool = False) -> Ended:
    return Ended(Speaker(rank), Ending("died", code), root)


def raised(rank: int | None, exception: str, message: str, **more: Any) -> Ended:
    return Ended(Speaker(rank), Ending("raised", 1, exception, message, **more))


def report(*facts: Fact, size: int = 0) -> Recording:
    """The Recording of one file with these facts."""
    first = (WorldSize(size),) if size else ()
    return recording([Found("job.log", "a log", (*first, *facts))])


def diagnosis(*facts: Fact, size: int = 0) -> Diagnosis:
    return diagnose(report(*facts, size=size))
