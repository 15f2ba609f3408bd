"""The lines of the NCCL watchdog and of its heartbeat monitor, as torch 1.13 to 2.13 write them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ddpnb.explanations.messages.tracebacks import of_user
from ddpnb.model.calls import NO_SITE, P2P_OPS, UNNAMED, CallState, Signature, Site
from ddpnb.model.names import given_name
from ddpnb.model.stacks import MAX_FRAMES, Frame, Stack
from ddpnb.reports.facts import (
    NOBODY,
    CallSeen,
    Fact,
    GroupName,
    Members,
    Message,
    Progress,
    Speaker,
    Unknown,
    WorldSize,
)
from ddpnb.reports.logs import Log, last_match
from ddpnb.reports.operations import operation

NAME = "NCCL watchdog log"
MARKS = ("CL(", "enqueued", "watchdog", "Heartbeat monitor")

# Terminals wrap lines, also within words: texts are compared without blanks.
_BLANK = re.compile(r"\s+")
_WORK = re.compile(r"Work[A-Z][A-Z0-9]{0,8}CL\s?\(")
_CAUGHT = re.compile(r"Watchdog\s{1,3}caught\s")
_CALL = re.compile(
    r"Work\w{1,12}\((?:SeqNum=(?P<seq>\d{1,18}),)?OpType=(?P<op>\w{1,60})"
    r"(?:,TensorShape=\[(?P<shape>[\d,\[\]]{0,400}?)\])?(?:,NumelIn=(?P<numel>\d{1,18}))?(?:,NumelOut=(?P<out>\d{1,18}))?"
    r"(?:,Timeout\(ms\)=(?P<timeout>\d{1,15}))?\)(?:ranfor(?P<ran>\d{1,15})milliseconds|timedout)?"
)
_TIMED_OUT = re.compile(r"(?:[Tt]ime-?out|timedout):?$")
_RANK = re.compile(r"\[Rank(\d{1,6})\]")
_GROUP = re.compile(
    r"\[(?=PG)(?:PG(?:ID)?(?P<id>(?!GUID)\w{1,80}?))?(?:PGGUID(?P<guid>[^()\[\]]{1,120}?))?"
    r"(?:\((?P<label>[^()\[\]]{0,200})\))?Rank(?P<rank>\d{1,6})\]"
)
_STATUS = re.compile(r"ast\s{1,3}enqueued\s")
_NUMBERS = re.compile(
    r"astenqueued(?:\w{1,6}?)?work:(-?\d{1,18}),(?:laststarted(?:\w{1,6}?)?work:(-?\d{1,18}),)?"
    r"lastcompleted(?:\w{1,6}?)?work:(-?\d{1,18})"
)
_AT = re.compile(r"at(?:\w{1,6}?)?work(?:sequenceid)?:(\d{1,18}),?(?:PGstatus:)?$")
_TRACE = re.compile(r"Stack trace of the failed collective:\s{0,3}\n")
_FRAME = re.compile(r"\s{0,8}#\d{1,4} (.{1,200}?) from (.{1,1000}):(\d{1,9})$")
_FAILED = tuple(
    re.compile(pattern)
    for pattern in (
        r"watchdog thread terminated with exception:\s{1,3}(?!\[Rank \d{1,6}\]\s{1,3}Watchdog\s{1,3}caught)",
        r"Heartbeat monitor timed out",
        r"watchdog got stuck for \d{1,9}\s",
    )
)
_GLOG = re.compile(r"\[[EFWI][\d ][^\]\n]{0,80}")
_WRAPPED = 4  # lines
_BEFORE, _AFTER = 400, 900  # characters of a message
_MOST = 4096  # statuses of one rank


@dataclass(frozen=True, slots=True)
class _Status:
    """A line that names a group, and the call at which the watchdog stopped; 0: none."""

    offset: int
    speaker: Speaker
    group: GroupName
    work: int
    progress: Progress


def read(log: Log) -> Iterator[Fact]:
    """The calls that timed out, how far each rank was, and the errors that the watchdog met."""
    statuses: dict[tuple[Speaker, int], list[_Status]] = {}
    for status in _statuses(log):
        statuses.setdefault((status.speaker, status.group.rank), []).append(status)
    stacks: dict[Speaker, list[tuple[int, Stack]]] = {}
    for start, speaker, stack in _stacks(log):
        stacks.setdefault(speaker, []).append((start, stack))
    sizes: dict[str, int] = {}
    found = list(_named(log, statuses, stacks, sizes))
    calls = _adopted(found)
    if calls != found:
        yield Unknown(
            "Calls of which the log names no group are taken for those of the group in which others made the same call."
        )
    yield from _without_later(calls)
    if "" in sizes:
        yield WorldSize(sizes[""])
    if "" in sizes and not any(call.group.label == "default_pg" for call in calls):
        yield Unknown(
            f"The log names no group for calls of {sizes['']} ranks: they are taken for those of the default group, and their number "
            "for that of all ranks."
        )
    yield from _members(calls, [status for found in statuses.values() for status in found], sizes)
    yield from dict.fromkeys(status.progress for found in statuses.values() for status in found)
    yield from _failures(log)


def _members(calls: Iterable[CallSeen], statuses: Iterable[_Status], sizes: dict[str, int]) -> Iterator[Fact]:
    """The members of groups, of which the log names some with their places: where these have equal distances, all have.

    The size is that which a gather or a scatter shows, or at least that which the known places need; without a gap among
    these it would say nothing.
    """
    places: dict[GroupName, dict[int, int]] = {}
    for fact in (*calls, *(status.progress for status in statuses)):
        rank, group = fact.speaker.rank, fact.group
        if rank is not None and group.rank >= 0 and group.name not in ("", "?"):
            places.setdefault(GroupName(group.name, group.label), {})[group.rank] = rank
    for group, known in places.items():
        size = max(sizes.get(group.name, 0), max(known) + 1)
        first, last = min(known), max(known)
        if len(known) < 2 or len(known) == size or size > _MOST:
            continue
        step, rest = divmod(known[last] - known[first], last - first)
        ranks = tuple(known[first] + step * (place - first) for place in range(size))
        if rest or step < 1 or ranks[0] < 0 or any(ranks[place] != rank for place, rank in known.items()):
            continue
        yield Members(replace(group, ranks=ranks))
        yield Unknown(
            f"The log does not list the members of {group.label or f'group {group.name}'}: {', '.join(map(str, ranks[:64]))} are "
            "inferred from those that it names. The flight recorder (TORCH_FR_BUFFER_SIZE=2000) lists them."
        )


def _named(
    log: Log,
    statuses: dict[tuple[Speaker, int], list[_Status]],
    stacks: dict[Speaker, list[tuple[int, Stack]]],
    sizes: dict[str, int],
) -> Iterator[CallSeen]:
    """The calls, each once, with their groups, and the sizes of these as far as the calls show them."""
    named: dict[object, CallSeen] = {}
    for call, rank, size in _calls(log, stacks):
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


def _compact(text: str) -> str:
    return _BLANK.sub("", text)


def _calls(log: Log, stacks: dict[Speaker, list[tuple[int, Stack]]]) -> Iterator[tuple[CallSeen, int, int]]:
    """The calls, each with the rank in brackets before it, that in the call's group, and the size of the group or 0."""
    for place, match in _texts(log):
        before = _compact(log.text[max(place.start() - _BEFORE, 0) : place.start()])
        if match is None or not (match["ran"] or match[0].endswith("timedout") or _TIMED_OUT.search(before)):
            continue
        rank, group = _last(_RANK, before), _last(_GROUP, before)
        speaker = _speaker(log, place.start())
        # "[PG 0 Rank 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught ..."
        own = group is not None and "terminatedwithexception" in before[group.end() :]
        logged = stacks.get(speaker, [])
        after = bisect_right(logged, place.start(), key=lambda entry: entry[0])  # it is logged after the call
        stack = logged[after][1] if after < len(logged) else None
        op = operation(match["op"])
        yield (
            CallSeen(
                speaker,
                _group(group) if own and group is not None else GroupName(),
                seq=0 if op in P2P_OPS or match["seq"] is None else int(match["seq"]),
                signature=_signature(op, match["shape"], match["numel"]),
                state=CallState.WAITING,
                site=_site(stack),
                waited_s=int(match["ran"] or 0) / 1000,
                timeout_s=int(match["timeout"] or 0) / 1000,
                stack=stack,
            ),
            int(rank[1]) if rank else -1,
            _size(op, int(match["numel"] or 0), int(match["out"] or 0)),
        )


def _texts(log: Log) -> Iterator[tuple[re.Match[str], re.Match[str] | None]]:
    """The places at which a call is described, with the description."""
    for place in _WORK.finditer(log.text):
        yield place, _CALL.match(_compact(log.text[place.start() : place.start() + _AFTER]))
    for place in _CAUGHT.finditer(log.text):
        if _WORK.search(log.text, place.end(), place.end() + 120) is None:  # wrapped within this word
            yield place, _CALL.search(_compact(log.text[place.start() : place.start() + _AFTER]))


def _size(op: str, given: int, received: int) -> int:
    """How many ranks a gather or a scatter has: its output and its input differ by that factor."""
    more, less = (received, given) if op.startswith("all_gather") else (given, received)
    return more // less if op.startswith(("all_gather", "reduce_scatter")) and less and more % less == 0 else 0


def _signature(op: str, shape: str | None, numel: str | None) -> Signature:
    name = UNNAMED if op == "unknown" else op
    sizes = shape if shape is not None else numel
    if sizes is None:
        return Signature(name, device="cuda")
    return Signature(name, (tuple(int(size) for size in re.findall(r"\d{1,18}", sizes)[:16]),), device="cuda")


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return last_match(pattern, text, 0, len(text))


def _speaker(log: Log, offset: int) -> Speaker:
    """Who wrote the message: by the prefix of the line in which its bracket opens, which a terminal may have wrapped."""
    start = offset
    for _ in range(6):
        found = log.text.rfind("[", max(offset - _BEFORE, 0), start)
        if found < 0:
            break
        start = found
        if _compact(log.text[found : found + 12]).startswith(("[PG", "[Rank")):
            break
    speaker, line = log.speaker_at(start), log.line_at(start)
    while speaker == NOBODY and line > 0 and log.line_at(start) - line < _WRAPPED:
        line -= 1
        if log.speakers[line].rank is not None:
            beginning = log.text[log.starts[line] : log.starts[line + 1]]
            return log.speakers[line] if _GLOG.match(beginning) else speaker
        if _GLOG.match(log.text, log.starts[line]):
            break
    return speaker


def _who(text: str) -> tuple[re.Match[str] | None, re.Match[str] | None]:
    """The last name of a group or of a rank in a text: what is before it belongs to other messages."""
    group, rank = _last(_GROUP, text), _last(_RANK, text)
    if group is not None and rank is not None:
        return (group, None) if group.start() > rank.start() else (None, rank)
    return group, rank


def _group(match: re.Match[str]) -> GroupName:
    name = match["guid"] or match["id"] or ""
    label = given_name(match["label"] or "")
    if name == "0" or label == "default_pg":
        return GroupName("", label or "default_pg", int(match["rank"]))
    return GroupName(given_name(name), "" if label == "undefined" else label, int(match["rank"]))


def _group_of(call: CallSeen, rank: int, statuses: dict[tuple[Speaker, int], list[_Status]]) -> GroupName:
    """The group of a call: its own line names none, the next line of the watchdog does."""
    if call.group != GroupName():
        return call.group
    mine = [*statuses.get((call.speaker, rank), ()), *statuses.get((call.speaker, -1), ())][-_MOST:]
    groups = {status.group for status in mine if status.work == call.seq} or {status.group for status in mine}
    if len(groups) == 1:
        return groups.pop()
    if call.speaker.rank is not None and rank >= 0 and call.speaker.rank != rank:
        return GroupName("?", rank=rank)  # not the default group, whose ranks are the global ones
    return GroupName(rank=rank)


def _statuses(log: Log) -> Iterator[_Status]:
    end = 0
    for place in _STATUS.finditer(log.text):
        numbers = _NUMBERS.match(_compact(log.text[place.start() : place.start() + 200]))
        start = max(place.start() - _BEFORE, end)
        before, end = _compact(log.text[start : place.start()]), place.end()
        if numbers is None:
            continue
        group, rank = _who(before)
        at = _AT.search(before.removesuffix("L").removesuffix("l"))
        speaker = _speaker(log, place.start())
        name = _group(group) if group else GroupName(rank=int(rank[1]) if rank else -1)
        if speaker.rank is None and name.rank >= 0 and name.name == "":
            speaker = replace(speaker, rank=name.rank)
        # -1: none yet
        enqueued, started, completed = (-1 if number is None else max(int(number), 0) for number in numbers.groups())
        progress = Progress(speaker, name, enqueued, started, completed)
        yield _Status(place.start(), speaker, name, int(at[1]) if at else 0, progress)


def _stacks(log: Log) -> Iterator[tuple[int, Speaker, Stack]]:
    """The stack of the call that failed, innermost frame first; only its first line has a prefix."""
    for place in _TRACE.finditer(log.text):
        frames: list[Frame] = []
        for line in log.text[place.end() : place.end() + 20_000].split("\n"):
            match = _FRAME.match(line)
            if match is None or len(frames) == MAX_FRAMES:
                break
            frames.append(Frame(match[2], int(match[3]), given_name(match[1]), of_user(match[2])))
        if frames:
            yield place.start(), log.speaker_at(place.start()), Stack("MainThread", tuple(reversed(frames)), main=True)


def _site(stack: Stack | None) -> Site:
    frame = stack.innermost_user if stack is not None else None
    return frame.site if frame is not None else NO_SITE


def _failures(log: Log) -> Iterator[Fact]:
    """What the watchdog or its monitor met besides time-outs of calls."""
    seen: set[tuple[Speaker, str]] = set()
    for place in (place for pattern in _FAILED for place in pattern.finditer(log.text)):
        group, rank = _who(_compact(log.text[max(place.start() - _BEFORE, 0) : place.start()]))
        speaker = _speaker(log, place.start())
        if speaker.rank is None and group is not None and _group(group).name == "":
            speaker = replace(speaker, rank=int(group["rank"]))
        elif speaker.rank is None and rank is not None:
            speaker = replace(speaker, rank=int(rank[1]))
        text = log.text[place.start() : place.start() + 2000].partition("Exception raised from")[0]
        text = re.split(r"\n\s{0,8}\n|\n\[", text, maxsplit=1)[0].strip()
        if (speaker, text) not in seen:
            seen.add((speaker, text))
            yield Message(speaker, text)
