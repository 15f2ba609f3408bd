"""The log of the NCCL watchdog and of its heartbeat monitor, as torch 1.13 to 2.15 write it, and of NCCL2.

The message of a call does not always name its rank and its group: other messages of the same process do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ddpnb.recording.calls import CallState, Signature
from ddpnb.reports import watchdog_lines
from ddpnb.reports.facts import CallSeen, Fact, GroupName, Members, Progress, Speaker, Unknown, Waiting, WorldSize
from ddpnb.reports.groups import regular
from ddpnb.reports.logs import Log

NAME = "NCCL watchdog log"
MARKS = ("CL(", "enqueued", "watchdog", "Heartbeat monitor", "failed or timed out", "should dump", "[TC]")

#: SGLang's own watchdog, of the scheduler of one GPU
_SCHEDULER = re.compile(r"[Ww]atchdog timeout \(self\.watchdog_timeout=(\d{1,6})")
_MOST = 4096  # members of a group that are inferred


def read(log: Log) -> Iterator[Fact]:
    """The calls that timed out, how far each rank was, and the errors that the watchdog met."""
    statuses = list(watchdog_lines.statuses(log))
    sizes: dict[str, int] = {}
    found = list(_named(log, _by_work(statuses), sizes))
    calls = _adopted(found)
    if calls != found:
        yield Unknown(
            "Calls of which the log names no group are taken for those of the group in which others made the same call."
        )
    yield from _without_later(calls)
    named = {call.group.name for call in calls}
    if "" not in named and (size := sizes.pop("", 0)) and len(named) == 1:
        sizes.setdefault(min(named), size)  # it is that of the group which they are taken for
    if "" in sizes:
        yield WorldSize(sizes[""])
    if "" in sizes and not any(call.group.label == "default_pg" for call in calls):
        yield Unknown(
            f"The log names no group for calls of {sizes['']} ranks: they are taken for those of the default group, and their number "
            "for that of all ranks."
        )
    progress = list(dict.fromkeys(progress for progress, _ in statuses))
    yield from _members([*calls, *progress], sizes)
    yield from progress
    yield from watchdog_lines.failures(log)
    for match in _SCHEDULER.finditer(log.text):
        yield Waiting(log.speaker_at(match.start()), "call", timeout_s=float(match[1]), at=log.quoted(match.start()))
    yield from watchdog_lines.unnamed(log, {call.speaker.rank for call in calls})


def _named(log: Log, statuses: _ByWork, sizes: dict[str, int]) -> Iterator[CallSeen]:
    """The calls, each once, with their groups, and the sizes of these as far as the calls show them."""
    named: dict[object, CallSeen] = {}
    for call, rank, size in watchdog_lines.calls(log):
        group = _group_of(call, rank, statuses)
        if size:
            sizes[group.name] = size
        speaker = call.speaker
        if speaker.rank is None and rank >= 0 and group.name == "":
            speaker = replace(speaker, rank=rank)  # the default group, whose ranks are global
        # The watchdog's message is repeated by the exception that ends the process, often without the prefix.
        same = (group.rank, call.seq, call.signature)
        known = named.get((speaker.rank, *same)) or (named.get(same) if speaker.rank is None else None)
        if known is None:
            named[speaker.rank, *same] = named[same] = found = replace(call, speaker=speaker, group=group)
            yield found


_ByWork = dict[tuple[Speaker, int], dict[int | None, set[GroupName]]]


def _by_work(statuses: Iterable[tuple[Progress, int]]) -> _ByWork:
    """The groups that lines of a rank name, by the call at which the watchdog stopped; None: by any. Of several, two."""
    found: _ByWork = {}
    for progress, stopped_at in statuses:
        for work in (stopped_at, None):
            groups = found.setdefault((progress.speaker, progress.group.rank), {}).setdefault(work, set())
            if len(groups) < 2:
                groups.add(progress.group)
    return found


def _group_of(call: CallSeen, rank: int, statuses: _ByWork) -> GroupName:
    """The group of a call: its own line names none, the next line of the watchdog does."""
    if call.group != GroupName():
        return call.group
    mine = [statuses.get((call.speaker, place), {}) for place in (rank, -1)]
    for work in (call.seq, None):
        groups = {group for one in mine for group in one.get(work, ())}
        if len(groups) == 1:
            return groups.pop()
        if groups:
            break
    if call.speaker.rank is not None and rank >= 0 and call.speaker.rank != rank:
        return GroupName("?", rank=rank)  # not the default group, whose ranks are the global ones
    return GroupName(rank=rank)


def _adopted(calls: list[CallSeen]) -> list[CallSeen]:
    """The calls, those of no named group in the one group that made the same call: a log may be cut before its name."""
    named: dict[tuple[int, Signature], set[tuple[str, str]]] = {}
    for call in calls:
        if call.group.name not in ("", "?"):
            named.setdefault((call.seq, call.signature), set()).add((call.group.name, call.group.label))
    places = [(call.group.rank, call.speaker.rank) for call in calls if call.group.name not in ("", "?")]
    alike = all(place == rank for place, rank in places)  # then a place in the group is a global rank
    found: list[CallSeen] = []
    for call in calls:
        groups = (
            named.get((call.seq, call.signature), set())
            if not call.group.name + call.group.label and call.seq
            else set()
        )
        if len(groups) == 1:
            ((name, label),) = groups
            place = call.speaker.rank if alike and call.speaker.rank is not None else -1
            call = replace(call, group=GroupName(name, label, place))
        found.append(call)
    return found


def _without_later(calls: Iterable[CallSeen]) -> Iterator[CallSeen]:
    """Time-outs of calls behind the first one of a rank and a group: the rank did not get there, it enqueued them."""
    found = list(calls)
    first: dict[tuple[Speaker, GroupName], int] = {}
    for call in found:
        place = call.speaker, call.group
        first[place] = min(first.get(place, call.seq), call.seq)
    for call in found:
        later = call.seq > first[call.speaker, call.group]
        yield replace(call, state=CallState.ISSUED) if later else call


def _members(facts: Iterable[CallSeen | Progress], sizes: dict[str, int]) -> Iterator[Fact]:
    """The members of groups, of which the log names some with their places: where these have equal distances, all have.

    The size is that which a gather or a scatter shows, or at least that which the known places need; without a gap among
    these it would say nothing.
    """
    places: dict[GroupName, dict[int, int]] = {}
    for fact in facts:
        rank, group = fact.speaker.rank, fact.group
        if rank is not None and group.rank >= 0 and group.name not in ("", "?"):
            places.setdefault(GroupName(group.name, group.label), {})[group.rank] = rank
    for group, known in places.items():
        size = max(sizes.get(group.name, 0), max(known) + 1)
        ranks = regular(known, size) if len(known) < size <= _MOST else ()
        if not ranks:
            continue
        yield Members(replace(group, ranks=ranks))
        yield Unknown(
            f"The log does not list the members of {group.label or f'group {group.name}'}: {', '.join(map(str, ranks[:64]))} are "
            "inferred from those that it names. The flight recorder (TORCH_FR_BUFFER_SIZE=2000) lists them."
        )
