"""Numbered checkpoints that verbose scripts print: ``[R0/2][LR0][4711] CHECKPOINT 9: about to wrap the model``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpnb.recording.names import given_name
from ddpnb.reports.facts import CheckpointPassed, Fact, Identity, Speaker, WorldSize
from ddpnb.reports.logs import Log

NAME = "numbered checkpoints of a script"
MARKS = ("CHECKPOINT", "Checkpoint", "checkpoint", "DDP-DEBUG")

# One pattern for each word: a search for plain text is fast.
_NUMBERED = tuple(
    re.compile(
        rf"(?P<word>{word})"
        r"[ _]{0,2}(?P<hash>#)?\s{0,2}(?P<number>\d{1,6})\b\]?\s{0,3}(?:[:.)\]=>|\u2013\u2014-]{1,4}|$)?\s{0,3}(?P<name>[^\n]{0,200})"
    )
    for word in ("CHECKPOINT", "heckpoint", "CKPT")
)
_DEBUG = re.compile(r"\[DDP[-_ ]DEBUG\](?P<rest>[^\n]{1,400})")
_RANK = re.compile(
    r"\[(?:R|[Rr]ank|RANK)[ :=]{0,2}(\d{1,6})(?:\s{0,2}/\s{0,2}(\d{1,6}))?\]|\b(?:[Rr]ank|RANK)[ :=]{1,2}(\d{1,6})(?:\s{0,2}/\s{0,2}(\d{1,6}))?\b"
)
_PID = re.compile(r"\[?\b(?:PID|pid)[ :=]{0,2}(\d{1,10})\b|\]\[(\d{2,10})\]")
_SINCE = re.compile(r"\[\+(\d{1,9}(?:\.\d{1,9})?)\s?s\]")
_SUSPECT = re.compile(r"\*{2,6}|\(?\b(?:SUSPECT|LIKELY HANG(?: POINT)?|POTENTIAL HANG)\b\)?:?")
# What differs between the ranks in the text of one checkpoint.
_OWN = re.compile(
    r"\b(?:cuda|gpu|device|rank|local_rank|pid)[ :=]{0,2}\d{1,10}\b|0x[0-9a-f]{1,16}|\d{1,9}\.\d{1,9}", re.IGNORECASE
)
_MOST = 1_000_000


def read(log: Log) -> Iterator[Fact]:
    """The checkpoints that each rank passed, the number of ranks, and which process each rank is."""
    sizes: set[int] = set()
    identities: dict[Speaker, None] = {}
    turns: dict[str, int] = {}
    for speaker, size, number, name, since in _passed(log):
        if size:
            sizes.add(size)
        if speaker.pid:
            identities[speaker] = None
        if number is None:
            number = turns.setdefault(_OWN.sub("", name).strip().lower(), len(turns) + 1)
        yield CheckpointPassed(speaker, number, given_name(name), since)
    if len(sizes) == 1:
        yield WorldSize(sizes.pop())
    for speaker in identities:
        yield Identity(speaker)


def _passed(log: Log) -> Iterator[tuple[Speaker, int, int | None, str, float]]:
    """(who, world size or 0, number or None, name, seconds since the start) of each line, in the order of the log."""
    found = [(match.start(), match, False) for pattern in _NUMBERED for match in pattern.finditer(log.text)]
    found += [(match.start(), match, True) for match in _DEBUG.finditer(log.text)]
    for start, match, debug in sorted(found, key=lambda place: place[0])[:_MOST]:
        line = max(log.text.rfind("\n", max(start - 400, 0), start) + 1, start - 400)
        before = log.text[line:start]
        tags = before + match["rest"] if debug else before
        rank = _RANK.search(tags)
        speaker = log.speaker_at(start)
        if rank is None and speaker.rank is None:
            continue
        # "Checkpoint 1000: saved" is the state of a model, without a rank before it.
        if not debug and rank is None and match["word"] != "CHECKPOINT" and not match["hash"]:
            continue
        pid = _PID.search(tags)
        number = int(rank[1] or rank[3]) if rank is not None else speaker.rank
        who = Speaker(number, int(pid[1] or pid[2]) if pid else speaker.pid, speaker.host)
        size = int(rank[2] or rank[4] or 0) if rank is not None else 0
        since = _SINCE.search(before)
        name = (
            match["rest"][rank.end() - len(before) :]
            if debug and rank and rank.end() > len(before)
            else match["rest"]
            if debug
            else match["name"]
        )
        name = _SUSPECT.sub("", name).strip(" :-\u2013\u2014\t*")
        yield who, size, None if debug else int(match["number"]), name, float(since[1]) if since else 0.0
