"""How ranks ended: which failures follow from another one, and what handlers caught before."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import replace

from ddpnb.recording.ending import Ending
from ddpnb.recording.events.runs import ExceptionHandled
from ddpnb.recording.events.startup import DestroyProcessGroup, InitProcessGroup, NewGroup
from ddpnb.recording.messages.errors import is_consequence_text
from ddpnb.recording.messages.explain import explain
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.source.branches import handler_at

_TIMED_OUT = re.compile(r"[Tt]imed out (?:waiting|after) \d{1,12}ms")
_BARRIER_LOST = "received errors while waiting for send/recv from rank"
REFUSAL = "CollectiveMismatch"  # what the fence raises
_NETWORK_ERRORS = frozenset({"DistNetworkError", "DistStoreError", "DistBackendError"})
_DEFAULT_S = 600.0  # of NCCL
_NOTICED_NS = 1_000_000_000  # within which the end of a process is seen


def _ran_out(record: RankRecord, ending: Ending) -> bool:
    """Whether the oldest call that a device waited in had reached its time-out when the rank ended: a watchdog aborts it then."""
    waited = next((call for call in record.in_flight if call.signature.asynchronous), None)
    if waited is None or not ending.at_ns:
        return False
    timeouts = [event.timeout_s for event in record.events(NewGroup) if event.name == waited.group.name]
    if str(waited.group) == "default_pg":
        timeouts = [event.timeout_s for event in record.events(InitProcessGroup)]
    seconds = timeouts[-1] if timeouts and timeouts[-1] is not None else _DEFAULT_S
    return ending.at_ns - waited.entered_ns >= seconds * 1e9


def is_consequence(record: RankRecord) -> bool:
    """Whether the failure of this rank is a secondary one, caused by another rank."""
    ending = record.ending
    if ending is None or ending.how != "raised":
        return ending is not None and ending.signal_name == "SIGABRT" and _ran_out(record, ending)
    inside = ending.frames[-1] if ending.frames else None
    if inside is not None and not inside.user and not re.search(r"[/\\](torch|ddpnb)[/\\]", inside.file):
        return False  # another library's connection, not the ranks' own
    at_start = any(event.state == "failed" for event in record.history)
    if (
        inside is not None
        and inside.user
        and not at_start
        and not re.search(r"gloo|nccl", ending.message, re.IGNORECASE)
    ):
        # Raised by the user's own statement, or by torch's C++ called straight from it.
        return ending.exception in _NETWORK_ERRORS and not is_stale_store(ending)
    if ending.exception in _NETWORK_ERRORS:
        return is_consequence_text(ending.message) and not is_stale_store(ending)
    lost = is_consequence_text(ending.message, certain=True)
    if record.reported and not ending.exception and (lost or _BARRIER_LOST in ending.message):
        return True  # in words of the backend, outside of any exception
    if ending.exception not in ("RuntimeError", "TimeoutError", "ConnectionError", "ConnectionResetError"):
        return False
    if lost:
        return True
    last = record.calls[-1] if record.calls else None
    # DDP waits in C++: its calls are left in flight when the wait fails.
    in_collective = bool(record.in_flight) or (last is not None and last.state.name in ("FAILED", "REFUSED"))
    return (in_collective or at_start) and is_consequence_text(ending.message)


def is_stale_store(ending: Ending) -> bool:
    """Whether a rank met what another run left: a port that is in use, a store in which more processes joined than it has ranks."""
    known = explain(ending.message, ending.exception)
    return known is not None and known.code == "DDP105"


def is_fence_stop(ending: Ending | None) -> bool:
    return ending is not None and ending.exception == REFUSAL


def handled_refusal(recording: Recording) -> bool:
    """Whether the script caught what refused its call, and continued: what it raised since follows from that."""
    return any(event.exception == REFUSAL for rank in recording.ranks for event in handled(recording, rank))


def before_the_signal(recording: Recording) -> Recording:
    """The same, as the ranks were before a launcher ended them with SIGTERM, as it does once another one has failed.

    One that had destroyed its process group counts as finished: it closed its connections, so that another failed which still
    needs it. One for which another had waited until a time-out was still at work.
    """
    failed = {
        rank: record.ending
        for rank, record in recording.ranks.items()
        if record.ending is not None and not record.ending.well and record.ending.code != -signal.SIGTERM
    }
    first = min((ending.at_ns for ending in failed.values()), default=0)
    timed_out = [at for ending in failed.values() if (at := timed_out_ns(ending))]
    ended = {
        rank: (record, record.ending)
        for rank, record in recording.ranks.items()
        if record.ending is not None
        and record.ending.code == -signal.SIGTERM
        and failed
        and first <= record.ending.at_ns
    }
    before = {
        rank: replace(record, ending=replace(ending, how="finished", code=0) if _has_left(record) else None)
        for rank, (record, ending) in ended.items()
        if _has_left(record) or (timed_out and min(timed_out) == first)
    }
    return replace(recording, ranks={**recording.ranks, **before}) if before else recording


def timed_out_ns(ending: Ending | None) -> int:
    """When a wait of a rank timed out, which ended it; 0 if none did."""
    fired = ending is not None and ending.how == "raised" and _TIMED_OUT.search(ending.message[:20_000])
    return ending.at_ns if ending is not None and fired else 0


def _has_left(record: RankRecord) -> bool:
    """Whether it has destroyed its process group, and called nothing since."""
    left = [one.began_ns for one in record.events(DestroyProcessGroup) if one.everything]
    return bool(left) and not record.in_flight and all(call.entered_ns <= left[-1] for call in record.calls)


def ended_after(recording: Recording, failed: Iterable[int]) -> set[int]:
    """The ranks that were ended with SIGTERM since one of these had failed, as a launcher does: no cause of it.

    A rank that loses another one fails at once, and that a process has ended is seen a moment later: only what was seen some
    time after the failure did follow it. A watchdog that has aborted a rank had waited for its time-out: nothing that ended later
    has a part in that.
    """
    endings = {rank: record.ending for rank, record in recording.ranks.items() if record.ending is not None}
    since = [
        one.at_ns + (0 if one.signal_name == "SIGABRT" else _NOTICED_NS) for one in map(endings.__getitem__, failed)
    ]
    return {rank for rank, one in endings.items() if since and one.code == -signal.SIGTERM and one.at_ns >= min(since)}


def handled(recording: Recording, rank: int) -> list[ExceptionHandled]:
    """The exceptions that handlers of a rank caught, in their order; of a file without text, what may have been one."""
    found: dict[tuple[object, ...], ExceptionHandled] = {}
    for event in recording.ranks[rank].events(ExceptionHandled):
        source = recording.sources.get(event.site.file, "")
        handler = handler_at(source, event.site.line)
        if handler is not None or not source:
            found.setdefault((event.exception, event.raised, event.site.file, handler or event.site.line), event)
    return list(found.values())
