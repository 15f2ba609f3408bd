"""What single messages of the NCCL watchdog say: of calls that timed out, of how far a group is, of stacks and of errors."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from ddpnb.recording.calls import NO_SITE, P2P_OPS, UNNAMED, CallState, Signature, Site
from ddpnb.recording.messages.tracebacks import of_user
from ddpnb.recording.names import given_name
from ddpnb.recording.stacks import MAX_FRAMES, Frame, Stack
from ddpnb.reports.facts import NOBODY, CallSeen, Fact, GroupName, Message, Progress, Speaker, Waiting
from ddpnb.reports.logs import Log, last_match
from ddpnb.reports.operations import operation

# Terminals wrap lines, also within words: texts are compared without blanks.
_BLANK = re.compile(r"\s+")
_WORK = re.compile(r"Work[A-Z][A-Z0-9]{0,8}CL\s?\(")
_CAUGHT = re.compile(r"Watchdog\s{1,3}caught\s")
_CALL = re.compile(
    r"Work\w{1,12}\((?:SeqNum=(?P<seq>\d{1,18}),)?OpType=(?P<op>\w{1,60})"
    r"(?:,TensorShape=\[(?P<shape>[\d,\[\]]{0,400}?)\])?(?:,NumelIn=(?P<numel>\d{1,20}))?(?:,NumelOut=(?P<out>\d{1,20}))?"
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
_UNNAMED = {
    "call": (
        # a line that is cut, or a call that the watchdog does not describe
        re.compile(r"\[Rank (?P<own>\d{1,6})\] (?:Found key in store[^\n]{0,200}|)Watchdog caught collective"),
        re.compile(r"due to a collective timeout from\s{1,3}rank (?P<other>\d{1,6})\b"),
        re.compile(r"due to a collective timeout from\s{1,3}this\s{1,3}local\s{1,3}rank\b"),
        re.compile(r"\[Rank (?P<own>\d{1,6})\]\s{1,3}Some \w{1,10} operations have failed or timed out"),
        re.compile(
            r"\[Rank (?P<own>\d{1,6})\]\s{1,3}To avoid data inconsistency, we are taking the entire process down"
        ),
        # NCCL2 (torch 2.14 and later) names no call. Its rank is the one in the group, which the name of the default one shows.
        re.compile(
            r"\[TC\]\[rank=(?P<own>\d{1,6})\](?:\[name=(?:0|default_pg)?\])?\s{1,3}Operation timed out after \d{1,12} ms"
        ),
        re.compile(
            r"\[TC\](?:\[[^\]\n]{1,80}\]){0,3}\s{1,3}(?:Operation timed out after|Aborting process on rank \d{1,6} due to)"
        ),
    ),
    "store": (
        re.compile(
            r"PG (?:ID )?0 [^\n\]]{0,60}Rank (?P<own>\d{1,6})\] Failed to check the .should dump. flag on TCPStore[^\n]{0,100}error: "
        ),
    ),
}
_TRACE = re.compile(r"Stack trace of the failed collective:\s{0,3}\n")
_FRAME = re.compile(r"\s{0,8}#\d{1,4} (.{1,200}?) from (.{1,1000}):(\d{1,9})$")
_FAILED = tuple(
    re.compile(pattern)
    for pattern in (
        r"watchdog thread terminated with exception:\s{1,3}(?!\[Rank \d{1,6}\]\s{1,3}Watchdog\b)",
        r"Heartbeat monitor timed out",
        r"watchdog got stuck for \d{1,9}\s",
    )
)
_NO_SIZE = str(2**64 - 1)  # -1
_GLOG = re.compile(r"\[[EFWI][\d ][^\]\n]{0,80}")
_WRAPPED = 4  # lines
_BEFORE, _AFTER = 400, 900  # characters of a message


def calls(log: Log) -> Iterator[tuple[CallSeen, int, int]]:
    """The calls, each with the rank in brackets before it and the size of its group, or 0."""
    stacks: dict[Speaker, list[tuple[int, Stack]]] = {}
    for start, speaker, stack in _stacks(log):
        stacks.setdefault(speaker, []).append((start, stack))
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
                at=log.quoted(place.start()),
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
    # Of coalesced calls it is the size of one of them, or that of none.
    if sizes is None or op == "coalesced" or sizes == _NO_SIZE:
        return Signature(name, device="cuda")
    return Signature(name, (tuple(int(size) for size in re.findall(r"\d{1,18}", sizes)[:16]),), device="cuda")


def _site(stack: Stack | None) -> Site:
    frame = stack.innermost_user if stack is not None else None
    return frame.site if frame is not None else NO_SITE


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


def statuses(log: Log) -> Iterator[tuple[Progress, int]]:
    """How far the groups of each process are, each with the call at which the watchdog stopped; 0: none."""
    end = 0
    for place in _STATUS.finditer(log.text):
        numbers = _NUMBERS.match(_compact(log.text[place.start() : place.start() + 200]))
        speaker, group, before = _writer(log, place.start(), end)
        end = place.end()
        if numbers is not None:
            at = _AT.search(before.removesuffix("L").removesuffix("l"))
            # -1: none yet
            last = (-1 if number is None else max(int(number), 0) for number in numbers.groups())
            yield Progress(speaker, group, *last, at=log.quoted(place.start() - 1)), int(at[1]) if at else 0


def failures(log: Log) -> Iterator[Fact]:
    """What the watchdog or its monitor met besides time-outs of calls."""
    found: dict[Message, None] = {}
    for place in (place for pattern in _FAILED for place in pattern.finditer(log.text)):
        text = log.text[place.start() : place.start() + 2000].partition("Exception raised from")[0]
        text = re.split(r"\n\s{0,8}\n|\n\[|\. This typically", text, maxsplit=1)[0].strip()
        found.setdefault(Message(_writer(log, place.start())[0], text, log.quoted(place.start())))
    yield from found


def unnamed(log: Log, shown: set[int | None]) -> Iterator[Fact]:
    """Ranks on which a call timed out or failed that the log does not show, and those that lost the store.

    Args:
        log: of the job.
        shown: the ranks whose calls the log shows.
    """
    for what, patterns in _UNNAMED.items():
        found = [(_lost(log, match), match.start()) for pattern in patterns for match in pattern.finditer(log.text)]
        first = {rank: offset for rank, offset in reversed(found) if rank is not None and rank not in shown}
        for rank, offset in sorted(first.items()):
            yield Waiting(Speaker(rank), what, at=log.quoted(offset))


def _lost(log: Log, match: re.Match[str]) -> int | None:
    """The global rank that a message is about: one in brackets is that in its group, the prefix of the line names its own."""
    named = match.groupdict()
    if named.get("other"):
        return int(named["other"])
    rank = _speaker(log, match.start() + 1).rank  # its own bracket may be the first of the match
    return int(named["own"]) if rank is None and named.get("own") else rank


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


def _writer(log: Log, offset: int, first: int = 0) -> tuple[Speaker, GroupName, str]:
    """Who wrote a message, the group that it names, and the text before it, from an offset on at the earliest."""
    before = _compact(log.text[max(offset - _BEFORE, first) : offset])
    group, rank = _who(before)
    name = _group(group) if group else GroupName(rank=int(rank[1]) if rank else -1)
    speaker = _speaker(log, offset)
    if speaker.rank is None and name.rank >= 0 and name.name == "":
        speaker = replace(speaker, rank=name.rank)
    return speaker, name, before


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


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return last_match(pattern, text, 0, len(text))


def _compact(text: str) -> str:
    return _BLANK.sub("", text)
