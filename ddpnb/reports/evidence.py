"""The order of evidence: which of the facts of a job are its cause, and which follow from it. docs/reported-hangs.md says it in words.

1. What a rank says of itself about waiting: a call that timed out, the last one that it enqueued or completed, its stacks.
2. The first thing that went wrong in time.
3. What follows: ends by a launcher (SIGTERM, and SIGKILL after its grace time), exceptions and ends after a time-out, exceptions
   after which the process continued, earlier attempts, and what somebody outside ended.

Facts of one log are compared by their lines, rows of one launcher's tables by their times: they are not in the order of time. Those of
several files are compared by their clocks (``clocks.py``); where these are not known to agree, it is said that the order is not known.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ddpnb.recording.calls import CallState
from ddpnb.recording.ending import Ending
from ddpnb.recording.facts.endings import is_consequence
from ddpnb.recording.facts.stack_calls import call_in
from ddpnb.recording.messages.explain import explain
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.report import LogLine
from ddpnb.recording.stacks import Stack
from ddpnb.reports import facts as reported
from ddpnb.reports.clocks import Clocks, earlier_attempts

RankOf = Callable[[reported.Fact], "int | None"]
_GRACE_S = 25.0  # after the first failure: torchrun waits 30 s between SIGTERM and SIGKILL
_ASKED = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
_MOST_LINES = 400
_ALL = 1 << 62  # lines
_KINDS, _ALIKE, _MOST_FILES = 24, 8, 64  # of failures that are compared, ranks of one kind, files

_LATER_S = 5.0  # after the first failure: the connections to that rank are lost at once

_BY_LAUNCHER = "the launcher ended it, as it does once another one has failed"
_WAITED = "it had waited until its time-out"
_AFTER = "it came after the time-out"
_LATER = "another one had failed before"
_CONTINUED = "the process continued"
_EARLIER = "it was in an earlier attempt"
_OUTSIDE = "the job was ended from outside"


@dataclass
class Weighed:
    """The facts that count, and what is said of the others.

    Args:
        facts: those from which the Recording is made.
        lines: of the logs, in their order, with those of ends that are no cause.
        outside: who ended the job, where no rank did.
        confirmed: ranks whose failure a launcher lists first, or after which others lost their connection.
        statuses: of ranks whose end follows from another one: their exit statuses.
        launcher_ended: a launcher, a scheduler or a person ended processes.
        unordered: ranks that failed, of which these files do not show which was the first.
        in_time: whether the lines are in the order of time; else by file.
    """

    facts: list[reported.Fact] = field(default_factory=list[reported.Fact])
    lines: list[LogLine] = field(default_factory=list[LogLine])
    outside: str = ""
    confirmed: set[int] = field(default_factory=set[int])
    launcher_ended: bool = False
    statuses: dict[int, int] = field(default_factory=dict[int, int])
    unordered: tuple[int, ...] = ()
    in_time: bool = True


def weigh(facts: Sequence[reported.Fact], rank_of: RankOf, clocks: Clocks) -> Weighed:
    """Put the facts of a job in the order of evidence.

    Args:
        facts: of all files.
        rank_of: the global rank that a fact is about, None where it is not known.
        clocks: of the files.

    Returns:
        The facts without those ends that follow from others.
    """
    found = Weighed()
    since = _last_starts(facts)
    waits = _Waits(facts, rank_of, since, clocks)
    tables = _Tables(facts, clocks)
    outside = next((fact for fact in facts if isinstance(fact, reported.EndedOutside)), None)
    listed = {rank_of(fact) for fact in _ends(facts) if (fact.table or fact.root) and not _is_asked(fact)}
    for fact in facts:
        rank = rank_of(fact)
        failed = rank in listed if rank is not None else bool(listed or waits.first)
        why = _EARLIER if _is_earlier(fact, since) else ""
        if isinstance(fact, reported.Ended) and not why:
            why = _why(fact, rank, waits, tables.after_first_s(fact), outside, failed=failed)
        found.launcher_ended |= isinstance(fact, reported.Ended) and why in (_BY_LAUNCHER, _OUTSIDE)
        if (line := getattr(fact, "at", None)) is not None:
            found.lines.append(replace(line, about=_about(fact), ranks=() if rank is None else (rank,), why=why))
        if why == _OUTSIDE:
            found.outside = outside.who if outside is not None else "Somebody interrupted the job (Ctrl-C)"
        if not why:
            found.facts.append(fact)
        elif rank is not None and isinstance(fact, reported.Ended) and why != _EARLIER and fact.ending.how != "raised":
            found.statuses[rank] = fact.ending.code
    found.facts, behind, found.unordered = _ordered(found.facts, rank_of, clocks)
    found.confirmed = _confirmed(found.facts, rank_of, clocks) - behind - {*found.unordered}
    if outside is not None:
        found.outside = outside.who
    found.lines, found.in_time = _shown(found.lines, clocks)
    return found


def _why(
    fact: reported.Ended,
    rank: int | None,
    waits: _Waits,
    after_s: float,
    outside: reported.EndedOutside | None,
    *,
    failed: bool,
) -> str:
    """Why the end of a process is no cause; empty where it may be one. ``after_s``: the first failure of its launcher's table."""
    ending = fact.ending
    if _is_asked(fact):
        return _OUTSIDE if outside is not None else _BY_LAUNCHER
    if fact.table and ending.code == -signal.SIGKILL and after_s >= _GRACE_S:
        return _BY_LAUNCHER
    if rank is not None and rank in waits.ranks and (waits.somebody_missing or not waits.is_before(fact, rank)):
        return _WAITED
    if rank in waits.alive and waits.is_after(fact) and not _has_own_cause(fact):
        return _AFTER
    if fact.table and ending.how == "exited" and after_s > _LATER_S:
        return _LATER
    if fact.continued and not failed and not (rank is None and _is_known(fact.ending)):
        return _CONTINUED
    if ending.exception == "KeyboardInterrupt" and not waits.interrupted:
        return _OUTSIDE
    if (
        outside is not None
        and outside.certain
        and not _has_own_cause(fact)
        and _comes_after(fact, outside, waits.clocks)
    ):
        return "" if _is_of_next_start(fact.ending) else _OUTSIDE
    return ""


def _comes_after(fact: reported.Ended, outside: reported.EndedOutside, clocks: Clocks) -> bool:
    """Whether an end is after the line of a log that says that somebody ended the job; a signal may also be before it."""
    if fact.ending.how != "raised" and fact.ending.code == -signal.SIGKILL:
        return True
    return clocks.before(outside.at, fact.at) is True


def _is_asked(fact: reported.Ended) -> bool:
    """Whether a signal ended a process that asks it to end: a launcher, a scheduler or a person sends it, no fault does."""
    return fact.ending.how != "raised" and fact.ending.code in _ASKED


def _is_known(ending: Ending) -> bool:
    """Whether it is an error of distributed training, which no program handles."""
    return explain(ending.message, ending.exception, frames=ending.frames) is not None


def _is_of_next_start(ending: Ending) -> bool:
    """Whether an exception is one of processes that start, with what an earlier run left: a job that was ended is started again."""
    known = explain(ending.message, ending.exception, frames=ending.frames)
    return known is not None and known.code == "DDP105"


def _has_own_cause(fact: reported.Ended) -> bool:
    """Whether the kernel says why it killed the process."""
    said = fact.ending.message
    return fact.ending.how == "died" and bool(said) and said not in ("Killed", "Terminated") and not fact.table


class _Waits:
    """What ranks say of waiting.

    Attributes:
        ranks: those that say that they waited until a time-out.
        first: by file, the first line that says so.
        alive: ranks that said how far they were when others had waited too long.
        somebody_missing: one of them did not wait itself.
        interrupted: Ctrl-C ended ranks that waited: their tracebacks are their stacks.
    """

    def __init__(self, facts: Sequence[reported.Fact], rank_of: RankOf, since: dict[str, int], clocks: Clocks) -> None:
        self.clocks = clocks
        self.ranks: dict[int, LogLine | None] = {}
        self.first: dict[str, LogLine] = {}
        self.interrupted = False
        behind: set[int] = set()
        for fact in facts:
            if _is_earlier(fact, since):
                continue
            rank = rank_of(fact)
            if _is_time_out(fact):
                at: LogLine | None = getattr(fact, "at", None)
                if rank is not None:
                    self.ranks.setdefault(rank, at)
                if at is not None:
                    self.first[at.path] = min(self.first.get(at.path, at), at, key=lambda line: line.number)
            elif isinstance(fact, reported.Progress) and rank is not None:
                behind.add(rank)
            elif isinstance(fact, reported.Ended) and fact.ending.exception == "KeyboardInterrupt":
                self.interrupted |= bool(call_in(Stack("MainThread", fact.ending.frames, main=True)))
        self.alive = behind if self.first else set[int]()
        self.somebody_missing = bool(behind - self.ranks.keys())
        self.interrupted |= bool(self.ranks)

    def is_after(self, fact: reported.Ended) -> bool:
        """Whether an end is after a time-out."""
        own = self.first.get(fact.at.path) if fact.at is not None else None
        lines = [own] if own is not None else list(self.first.values())[:_MOST_FILES]
        return any(self.clocks.before(line, fact.at) is True for line in lines)

    def is_before(self, fact: reported.Ended, rank: int) -> bool:
        """Whether an exception of a rank is before its own time-out, which may follow from it."""
        raised = fact.ending.how == "raised" and not fact.continued
        return raised and self.clocks.before(fact.at, self.ranks[rank]) is True


class _Tables:
    """The times of torchrun's tables: those of one clock are compared."""

    def __init__(self, facts: Sequence[reported.Fact], clocks: Clocks) -> None:
        self._clocks = clocks
        self._first: dict[str, float] = {}
        for fact in _ends(facts):
            if fact.clock_s and fact.at is not None and not _is_asked(fact):
                scale, at_s = clocks.of_table(fact.at.path, fact.clock_s)
                self._first[scale] = min(self._first.get(scale, at_s), at_s)

    def after_first_s(self, fact: reported.Ended) -> float:
        """How long after the first failure of a table it is; 0: not known."""
        if not fact.clock_s or fact.at is None:
            return 0.0
        scale, at_s = self._clocks.of_table(fact.at.path, fact.clock_s)
        return at_s - self._first.get(scale, at_s)


def _ordered(
    facts: Sequence[reported.Fact], rank_of: RankOf, clocks: Clocks
) -> tuple[list[reported.Fact], set[int], tuple[int, ...]]:
    """The facts with the order of failures; the ranks that failed after others; and those of which it is not known which was first."""
    kinds: dict[int, object] = {}
    groups: dict[object, dict[int, list[reported.Ended]]] = {}
    for fact in _ends(facts):
        rank = rank_of(fact)
        if rank is not None and not fact.ending.well and not _is_lost(fact):
            kind = kinds.setdefault(rank, _kind(fact, rank))
            groups.setdefault(kind, {}).setdefault(rank, []).append(fact)
    some = [
        [fact for ends in list(ranks.values())[:_ALIKE] for fact in ends] for ranks in list(groups.values())[:_KINDS]
    ]
    before = [sum(_precedes(other, one, clocks) for other in some if other is not one) for one in some]
    place = {rank: count for ranks, count in zip(groups.values(), before, strict=False) for rank in ranks}
    first = [ends for ends, count in zip(some, before, strict=False) if not count]
    paths = [{fact.at.path for fact in ends if fact.at is not None} for ends in first]
    apart = len(first) > 1 and not frozenset.intersection(*map(frozenset, paths))
    behind = {rank for rank, count in place.items() if count}
    later = [
        replace(fact, ending=replace(fact.ending, at_ns=1 + place[rank]))
        if isinstance(fact, reported.Ended) and (rank := rank_of(fact)) in behind and rank is not None
        else fact
        for fact in facts
    ]
    return later, behind, tuple(sorted(place.keys() - behind)) if apart else ()


def _kind(fact: reported.Ended, rank: int) -> object:
    """What ranks that fail alike have alike; of an exit status alone it is not known."""
    ending = fact.ending
    frame = ending.innermost_user
    return (ending.exception, frame and frame.site) if ending.how == "raised" else rank


def _precedes(ends: Sequence[reported.Ended], others: Sequence[reported.Ended], clocks: Clocks) -> bool:
    """Whether one of some ends is known to be before all of the others that can be compared."""
    known = [[clocks.ended_before(one, other) for other in others] for one in ends]
    return any(True in row and False not in row for row in known)


def _is_lost(fact: reported.Ended) -> bool:
    return is_consequence(RankRecord(0, ending=fact.ending, reported=True))


def _is_time_out(fact: reported.Fact) -> bool:
    if isinstance(fact, reported.CallSeen):
        return fact.state is CallState.WAITING and fact.waited_s + fact.timeout_s > 0
    return isinstance(fact, reported.Waiting) and fact.function == "call"


def _ends(facts: Iterable[reported.Fact]) -> Iterable[reported.Ended]:
    return (fact for fact in facts if isinstance(fact, reported.Ended))


_TELLING = (reported.Ended, reported.CallSeen, reported.Waiting, reported.Message)


def _last_starts(facts: Sequence[reported.Fact]) -> dict[str, int]:
    """By file, the line at which its last attempt began, if it holds any fact of that attempt."""
    starts: dict[str, int] = {}
    for fact in facts:
        if isinstance(fact, reported.Restarted) and fact.at is not None:
            starts[fact.at.path] = max(starts.get(fact.at.path, 0), fact.at.number)
    lines = [at for fact in facts if isinstance(fact, _TELLING) and (at := getattr(fact, "at", None)) is not None]
    starts |= dict.fromkeys(earlier_attempts({at.path for at in lines}), _ALL)
    return {
        path: start
        for path, start in starts.items()
        if start == _ALL or any(at.path == path and at.number > start for at in lines)
    }


def _is_earlier(fact: reported.Fact, since: dict[str, int]) -> bool:
    at: LogLine | None = getattr(fact, "at", None)
    return at is not None and at.number < since.get(at.path, 0)


def _confirmed(facts: Sequence[reported.Fact], rank_of: RankOf, clocks: Clocks) -> set[int]:
    """Ranks of which more than a traceback says that they failed first."""
    ends = [(rank, fact) for fact in _ends(facts) if (rank := rank_of(fact)) is not None]
    # Of an exit status alone another node's table may show an earlier one.
    with_traceback = {rank for rank, fact in ends if fact.ending.how == "raised" and fact.last}
    listed = {
        rank
        for rank, fact in ends
        if _has_own_cause(fact) or (fact.root and (fact.ending.how == "died" or rank in with_traceback))
    }
    lost = [fact for _, fact in ends if _is_lost(fact)]
    raised = {rank: fact for rank, fact in ends if fact.ending.how == "raised" and fact.last and fact not in lost}
    return listed | {
        rank for rank, fact in raised.items() if any(not clocks.before(other.at, fact.at) for other in lost)
    }


def _about(fact: reported.Fact) -> str:
    if _is_time_out(fact):
        return "wait"
    kinds = {
        reported.CallSeen: "call", reported.Progress: "progress", reported.Ended: "end", reported.EndedOutside: "outside",
        reported.Restarted: "restart",
    }  # fmt: skip
    return kinds.get(type(fact), "message")


def _shown(lines: Sequence[LogLine], clocks: Clocks) -> tuple[list[LogLine], bool]:
    """The lines in their order, each once, the first of very many; and whether it is the order of time."""
    ordered, in_time = clocks.in_order(lines)
    found: dict[tuple[str, int, str, tuple[int, ...]], LogLine] = {}
    for line in ordered:
        found.setdefault((line.path, line.number, line.about, line.ranks), line)
    return list(found.values())[:_MOST_LINES], in_time
