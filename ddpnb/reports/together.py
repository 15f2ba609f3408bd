"""From the facts of all files to one Recording."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Literal

from ddpnb.recording.calls import Call, CallState
from ddpnb.recording.ending import Ending
from ddpnb.recording.events import Event, read
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.recording.report import Report, Source
from ddpnb.recording.stacks import Stack
from ddpnb.reports import evidence
from ddpnb.reports import facts as reported
from ddpnb.reports.calls import calls_of, with_agreed, with_waits
from ddpnb.reports.clocks import Clocks
from ddpnb.reports.facts import Speaker
from ddpnb.reports.groups import Groups

MOST_RANKS = 1 << 16  # a number above is no rank
_KILLED_FOR_MEMORY = re.compile(r"oom[-_ ]?kill|OOM Killed|[Oo]ut of memory: Kill|^Out Of Memory$", re.IGNORECASE)
_LATER = 1  # of endings: after the first failure
# Processes that are no ranks: launchers, and workers of data loaders.
_OTHERS = (
    "torch/distributed/elastic/",
    "torch/distributed/run.py",
    "torch/utils/data/_utils/worker.py",
    "torch/_inductor/",
    "multiprocessing/resource_tracker.py",
)
_LISTED = 4096  # ranks of a world that are all listed
_GUESSED = (
    "No file says which process is which rank: they are numbered in the order of their process ids, as a launcher starts them "
    'on one machine. A line such as "Rank 3:" above each stack, or the rank in the file\'s name, says it.'
)


@dataclass
class _Rank:
    """What the files say of one rank."""

    pid: int = 0
    calls: list[Call] = field(default_factory=list[Call])
    seen: list[reported.CallSeen] = field(default_factory=list[reported.CallSeen])
    progress: list[reported.Progress] = field(default_factory=list[reported.Progress])
    forgotten: int = 0
    ending: Ending | None = None
    stacks: tuple[Stack, ...] = ()
    waits_at: Stack | None = None  # of the call that a dump shows it in; stacks of the process say more
    idle: bool | None = None
    events: list[Event] = field(default_factory=list[Event])
    lost: Literal["", "call", "store"] = ""


def recording(found: Sequence[reported.Found]) -> Recording:
    """One Recording of the facts of all files of one job.

    Args:
        found: the facts of each file, in the order in which the files were given: of two facts that contradict each other
            the later one counts.

    Returns:
        The Recording, whose ``report`` says where it comes from. A rank of which no fact is known has an empty record, or none in a
        world so large that a damaged line may have made it.
    """
    every = _numbered([fact for one in found for fact in one.facts])
    who = _Speakers(every)
    size, known = _world_size(every, who)
    present = frozenset[int]().union(*(one.extent.ranks for one in found))
    highest = max(present, default=-1)
    size, known = max(size, highest + 1), known and highest < size
    groups = Groups(every, who.rank, size)
    ranks: dict[int, _Rank] = defaultdict(_Rank)
    messages: list[str] = []
    endings: list[Ending] = []
    weighed = evidence.weigh(every, groups.global_rank, Clocks(found))
    for fact in weighed.facts:
        rank = groups.global_rank(fact)
        if rank is not None:
            _add(ranks[rank], fact)
        elif isinstance(fact, reported.CallSeen) and fact.state is CallState.WAITING and fact.waited_s + fact.timeout_s:
            messages.append(_timed_out(fact))
        elif isinstance(fact, reported.Message):
            messages.append(fact.text)
        elif isinstance(fact, reported.Ended):
            endings.append(fact.ending)
    if weighed.launcher_ended and not weighed.outside:
        endings.append(Ending("died", -signal.SIGTERM))
    waited_s = max((_waited(fact) for fact in weighed.facts), default=0.0)
    listed = range(size) if size <= _LISTED else sorted(rank for rank in ranks if rank < size)
    records = {rank: _record(rank, ranks[rank], groups) for rank in listed}
    seen = [fact for fact in every if isinstance(fact, reported.CallSeen) and fact.seq]
    records = with_waits(with_agreed(records, {(groups.of(one.group).key, one.seq) for one in seen}))
    report = Report(
        tuple(Source(one.path, one.format, len(one.facts)) for one in found),
        waited_s,
        known,
        tuple(sorted({rank for fact in every if isinstance(fact, reported.Waiting) for rank in fact.missing})),
        groups.observed,
        tuple(dict.fromkeys(messages)),
        tuple({(one.how, one.code, one.exception, one.message): one for one in endings}.values()),
        tuple(dict.fromkeys(fact.text for fact in every if isinstance(fact, reported.Unknown))),
        tuple(weighed.lines),
        weighed.outside,
        next((one.extent.excerpt for one in found if one.extent.excerpt), ""),
        tuple(sorted(_unsure(found, weighed, groups))),
        any(one.extent.cut for one in found),
        tuple(sorted(present)),
        tuple(sorted(weighed.statuses.items())),
        weighed.unordered,
        weighed.in_time,
    )
    return Recording(size, records, host={"oom_kills": _kills(every), "oom_kills_before": 0}, report=report)


def _unsure(found: Sequence[reported.Found], weighed: evidence.Weighed, groups: Groups) -> set[int]:
    """The ranks whose end, or whose number, is inferred."""
    inferred = {rank for one in found if one.extent.inferred for rank in one.extent.ranks}
    ended = {groups.global_rank(fact) for fact in weighed.facts if isinstance(fact, reported.Ended)} - {None}
    return inferred | {rank for rank in ended if rank is not None} - weighed.confirmed


def _numbered(facts: Sequence[reported.Fact]) -> list[reported.Fact]:
    """The facts, with ranks for processes that are known by their stacks alone, where no fact names a rank.

    They are numbered in the order of their process ids.
    """
    if any(not isinstance(fact, reported.Unknown) and not isinstance(fact, reported.StacksSeen) for fact in facts):
        return list(facts)
    processes = {fact.speaker: fact for fact in facts if isinstance(fact, reported.StacksSeen)}
    ranks = sorted(
        (speaker.host, speaker.pid) for speaker, fact in processes.items() if speaker.pid and not _is_other(fact)
    )
    if not ranks or any(speaker.rank is not None for speaker in processes):
        return list(facts)
    return [
        *(reported.Identity(Speaker(rank, pid, host)) for rank, (host, pid) in enumerate(ranks)),
        reported.Unknown(_GUESSED),
        *facts,
    ]


def _is_other(fact: reported.StacksSeen) -> bool:
    return any(
        part in frame.file.replace("\\", "/")
        for stack in fact.stacks
        if stack.main
        for frame in stack.frames
        for part in _OTHERS
    )


class _Speakers:
    """Which rank a fact is about."""

    def __init__(self, facts: Iterable[reported.Fact]) -> None:
        self._by_pid: dict[int, dict[str, int]] = defaultdict(dict)
        for fact in facts:
            if isinstance(fact, reported.Identity) and fact.speaker.rank is not None and fact.speaker.pid:
                self._by_pid[fact.speaker.pid][fact.speaker.host] = fact.speaker.rank

    def rank(self, speaker: Speaker) -> int | None:
        if speaker.rank is not None:
            return speaker.rank if 0 <= speaker.rank < MOST_RANKS else None
        hosts = self._by_pid.get(speaker.pid, {})
        if speaker.host in hosts:
            return hosts[speaker.host]
        # One file names a host, another its address: two addresses are two hosts.
        apart = _is_address(speaker.host)
        return next((rank for host, rank in hosts.items() if not (apart and _is_address(host))), None)


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _world_size(facts: Iterable[reported.Fact], who: _Speakers) -> tuple[int, bool]:
    """(the number of ranks, whether a file says it): else at least the highest rank that occurs."""
    said, highest = 0, -1
    for fact in facts:
        if isinstance(fact, reported.WorldSize):
            said = max(said, fact.size if 0 < fact.size <= MOST_RANKS else 0)
            continue
        rank, group = who.rank(reported.speaker_of(fact)), reported.group_of(fact)
        missing = fact.missing if isinstance(fact, reported.Waiting) else ()
        named = (-1 if rank is None else rank, *missing, *(group.ranks if group is not None else ()))
        highest = max([highest, *(rank for rank in named if 0 <= rank < MOST_RANKS)])
    return max(said, highest + 1), said > max(highest, 0)


def _add(rank: _Rank, fact: reported.Fact) -> None:
    match fact:
        case reported.CallSeen():
            rank.seen.append(fact)
        case reported.Calls():
            rank.calls, rank.forgotten, rank.waits_at = list(fact.calls), fact.forgotten, fact.stack
        case reported.Progress():
            rank.progress.append(fact)
        case reported.Ended():
            rank.ending = _ending(rank.ending, fact)
        case reported.StacksSeen():
            rank.stacks, rank.idle = fact.stacks, fact.idle
        case reported.CheckpointPassed():
            at = int(fact.at_s * 1e9)
            rank.events.append(read("checkpoint", {"name": fact.name, "number": fact.number}, "done", at, at))
        case reported.Waiting(function="init_process_group" | "new_group"):
            rank.events.append(read(fact.function, {"timeout_s": fact.timeout_s or None}, "open", 0, 0))
        case reported.Waiting(function=("call" | "store") as lost):
            rank.lost = rank.lost or lost
        case reported.Message():
            rank.ending = rank.ending or Ending("raised", 1, "", fact.text, at_ns=_LATER)
        case _:
            pass
    if isinstance(fact, (reported.Identity, reported.Ended, reported.StacksSeen)):
        rank.pid = rank.pid or fact.speaker.pid


def _ending(before: Ending | None, fact: reported.Ended) -> Ending:
    """A traceback says more than the exit status that a launcher lists, and it says it of the same end."""
    at_ns = fact.ending.at_ns or (0 if fact.root else _LATER)
    after = replace(fact.ending, at_ns=at_ns)
    if before is None:
        return after
    if before.how == "raised" and after.how != "raised":
        return replace(before, code=after.code or before.code, at_ns=min(before.at_ns, at_ns))
    if after.how == "raised" and before.how != "raised":
        return replace(after, code=before.code or after.code, at_ns=min(before.at_ns, at_ns))
    first, other = (before, after) if before.at_ns <= at_ns else (after, before)
    return replace(first, message=first.message or other.message)  # the kernel says more than a launcher


def _timed_out(call: reported.CallSeen) -> str:
    """The call of a rank that no file names, in the words of the watchdog."""
    number = f"SeqNum={call.seq}, " if call.seq else ""
    waited_ms = 1000 * (call.waited_s or call.timeout_s)
    return (
        f"Watchdog caught collective operation timeout: WorkNCCL({number}OpType={call.signature.op}, "
        f"Timeout(ms)={1000 * call.timeout_s:.0f}) ran for {waited_ms:.0f} milliseconds before timing out."
    )


def _kills(facts: Iterable[reported.Fact]) -> int:
    """How many processes were killed for memory: the kernel and a launcher may both say it of one."""
    said: list[reported.Ended | reported.Message] = []
    for fact in facts:
        if isinstance(fact, (reported.Ended, reported.Message)):
            text = fact.text if isinstance(fact, reported.Message) else fact.ending.message
            said += [fact] if _KILLED_FOR_MEMORY.search(text[:1000]) else []
    return len({fact.speaker for fact in said if isinstance(fact, reported.Ended)}) or min(len(said), 1)


def _waited(fact: reported.Fact) -> float:
    if isinstance(fact, reported.CallSeen):
        return fact.waited_s
    return fact.timeout_s if isinstance(fact, reported.Waiting) else 0.0


def _record(rank: int, told: _Rank, groups: Groups) -> RankRecord:
    calls = calls_of(told.calls, told.seen, told.progress, groups)
    main = next((stack for stack in told.stacks if stack.main), None)
    if main is not None and calls:
        calls = [replace(call, thread=main.native_id) for call in calls]
    return RankRecord(
        rank,
        told.pid,
        tuple(calls),
        tuple(told.events),
        told.stacks or ((told.waits_at,) if told.waits_at is not None else ()),
        Process("computing" if told.idle is False else "idle") if told.stacks and not calls else Process(),
        ending=told.ending,
        forgotten=max(told.forgotten, min((call.seq for call in calls if call.seq), default=1) - 1),
        unrecorded=bool(told.stacks) and not calls,
        reported=True,
        partial=not told.calls,
        reached=_reached(told, groups),
        lost=told.lost if told.ending is None and not calls else "",
    )


def _reached(told: _Rank, groups: Groups) -> dict[str, int]:
    reached: dict[str, int] = {}
    for progress in told.progress:
        key = groups.of(progress.group).key
        reached[key] = max(reached.get(key, 0), progress.enqueued, progress.completed)
    return reached
