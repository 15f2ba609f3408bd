"""What ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` and monitored_barrier report, and the time-outs of start-up and of the store."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise

from ddpnb.recording.calls import UNNAMED, CallState, Signature
from ddpnb.recording.messages import fingerprints
from ddpnb.recording.messages.explain import explain
from ddpnb.reports.facts import CallSeen, Fact, GroupName, Message, Speaker, Unknown, Waiting, WorldSize
from ddpnb.reports.logs import Log, last_match
from ddpnb.reports.operations import operation

NAME = "torch.distributed's checks and time-outs"
MARKS = (
    fingerprints.MISMATCH, "Running collective", "monitoredBarrier", "clients joined", "client socket", "ait timeout after", "store based barrier",
    "Timeout waiting for key", "ncclUniqueId", "op.preamble.length",
)  # fmt: skip

_DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool",
}  # fmt: skip
# Each is plain text, for which a search is fast; a message is the line from its beginning, or a part of it.
_PLACES = tuple(
    map(
        re.compile,
        (
            "failed to pass monitoredBarrier",
            "timed out in monitoredBarrier",
            "successfully reached monitoredBarrier",
            "seconds waiting for clients",
            "store based barrier on rank",
            "ait timeout after",
            "Timeout waiting for key",
            "client socket has",
            "ncclUniqueId from",
            "op\\.preamble\\.length",
        ),
    )
)
_HEAD = re.compile(r"[\w.]{1,100}(?:Error|Exception): ")
_SELF = re.compile(
    r"\[Rank (\d{1,6})\]: ?Rank|\bRank (\d{1,6}) (?:timed out|successfully)|barrier[^\n]{0,60}? (?:on|for) rank:? (\d{1,6})"
)
_SIZE = re.compile(r"\d{1,9}/(\d{1,9}) clients joined|world_size=(\d{1,9})")
_AFTER = re.compile(r"(\d{1,12}) ?ms|after (\d{1,9}) seconds|timeout=(\d{1,4}):(\d\d):(\d\d)")
_NEXT = re.compile(
    r"\n(?=\n|\[|Traceback|\s{0,8}File |Exception raised from|[\w.]{0,80}(?:Error|Exception|Timeout)\b|terminate called|frame #)"
)
_ANNOUNCED = re.compile(r"\[Rank (\d{1,6})\]\s{1,2}Running collective:\s{1,2}(?=Collective)")
_UNREACHED = re.compile(
    r"client socket has failed to connect to (?:\[([\w.:-]{1,200})\]|([\w.-]{1,200})):(\d{1,5}) \((?:\w{1,20} )?(?:errno|error): ?\d{1,5} - ([^)\n]{1,100})\)"
)
_FEW_WORDS = 30  # behind the last attempt
_SHOWN = 3  # addresses
_LAST = 256  # calls of a rank
_SEVERAL = (
    "The collectives that the ranks announce belong to several process groups, which the log does not name: collect the flight "
    "recorder (TORCH_FR_BUFFER_SIZE=2000), which names the group of each call."
)
_FUNCTIONS = {
    "DDP301": "monitored_barrier",
    "DDP102": "init_process_group",
    "DDP108": "new_group",
}
_AHEAD, _BEHIND = 4000, 1000  # characters of a message
_MOST = 5000  # messages


def read(log: Log) -> Iterator[Fact]:
    """The calls that do not match, and who waits for whom."""
    start, seen = log.text.find(fingerprints.MISMATCH), 0
    while start >= 0 and seen < _MOST:
        yield from _mismatch(log.speaker_at(start), log.text[start : start + 2 * _AHEAD])
        start, seen = log.text.find(fingerprints.MISMATCH, start + 1), seen + 1
    yield from _announced(log)
    done: set[Fact] = set()
    explained: set[tuple[Speaker, int]] = set()  # what a log repeats is explained once
    for pattern in _PLACES:
        for match in islice(pattern.finditer(log.text), _MOST):
            line = max(log.starts[log.line_at(match.start())], match.start() - _BEHIND)
            start = head.end() if (head := last_match(_HEAD, log.text, line, match.start())) else line
            speaker, text = log.speaker_at(match.start()), log.text[start : start + _AHEAD]
            if (speaker, hash(text)) in explained:
                continue
            explained.add((speaker, hash(text)))
            for fact in _waits(speaker, text):
                if fact not in done:
                    done.add(fact)
                    yield fact
    yield from _unreached(log)


def _unreached(log: Log) -> Iterator[Fact]:
    """Warnings about attempts to connect: torch makes several, and a log need not show whether a later one succeeded."""
    attempts = list(_UNREACHED.finditer(log.text))
    failed = dict.fromkeys((match[1] or match[2], match[3], match[4].strip()) for match in attempts)
    if len(attempts) > 1 and len(log.text[attempts[-1].end() :].split()) < _FEW_WORDS:
        host, port, reason = list(failed)[-1]
        yield Message(Speaker(), f"The log ends with failed attempts to connect to {host}:{port} ({reason})")
        return
    for host, port, reason in islice(failed, _SHOWN):
        yield Unknown(
            f"Whether a process reached {host}:{port} in the end: an attempt failed ({reason}). Try the host and the port from that "
            "machine (getent hosts HOST, nc -vz HOST PORT)."
        )


def _announced(log: Log) -> Iterator[Fact]:
    """The calls that each rank announces, where torch also logs what is no error: the last ones of each."""
    calls: dict[int, deque[CallSeen]] = {}
    for match in _ANNOUNCED.finditer(log.text):
        own = log.speaker_at(match.start()).rank
        rank = int(match[1])
        said = log.text[match.end() : match.end() + _AHEAD].partition("Running collective")[0]
        sides = fingerprints.sides(f"Rank {rank} is running collective: {said}")
        if own not in (None, rank) or not sides or not sides[0].seq or ")" not in said:
            continue  # the rank in brackets is that in the group; or the line is cut
        signature = _signature(sides[0])
        calls.setdefault(rank, deque(maxlen=_LAST)).append(
            CallSeen(Speaker(rank), GroupName(rank=rank), sides[0].seq, signature, CallState.ISSUED)
        )
    if all(before.seq <= after.seq for own in calls.values() for before, after in pairwise(own)):
        for own in calls.values():
            yield from own
    elif calls:
        yield Unknown(_SEVERAL)


def _signature(side: fingerprints.Fingerprint) -> Signature:
    sizes = tuple(int(size) for size in re.findall(r"\d{1,18}", side.shape)[:16])
    dtype = side.dtype.split(",")[0].strip()
    return Signature(
        operation(side.op) if side.op != fingerprints.ANOTHER else UNNAMED,
        (sizes,) if dtype else (),
        (_DTYPES.get(dtype, dtype),) if dtype else (),
    )


def _mismatch(speaker: Speaker, text: str) -> Iterator[Fact]:
    sides = fingerprints.sides(re.sub(r"\s{1,8}", " ", text))
    if len(sides) < 2:
        return
    yield Message(speaker, re.sub(r"\s{1,8}", " ", _NEXT.split(text, maxsplit=1)[0])[:2000])
    # Where torch misreads the operation of one side, it misreads its number too: then the message says all that is known.
    for side in sides if all(side.op != fingerprints.ANOTHER for side in sides) else ():
        yield CallSeen(Speaker(side.rank), GroupName(), side.seq or 0, _signature(side), CallState.WAITING)


def _waits(speaker: Speaker, text: str) -> Iterator[Fact]:
    message = _NEXT.split(text, maxsplit=1)[0].strip()
    explained = explain(message)
    if explained is None:
        return
    if speaker.rank is None and (own := _SELF.search(message)):
        speaker = Speaker(int(own[1] or own[2] or own[3]), speaker.pid, speaker.host)
    if size := _SIZE.search(message):
        yield WorldSize(int(size[1] or size[2]))
    if explained.code in _FUNCTIONS:
        yield Waiting(speaker, _FUNCTIONS[explained.code], explained.missing, _seconds(message))
    yield Message(speaker, message)


def _seconds(text: str) -> float:
    match = _AFTER.search(text)
    if match is None:
        return 0.0
    if match[3] is not None:
        return int(match[3]) * 3600.0 + int(match[4]) * 60 + int(match[5])
    return int(match[1]) / 1000 if match[1] else float(match[2])
