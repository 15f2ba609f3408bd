"""Known error texts (``recording/messages/errors.toml``) of a log, without an exception around them: the kernel's too."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from itertools import islice

from ddpnb.recording.ending import Ending
from ddpnb.recording.messages.entries import words
from ddpnb.recording.messages.explain import logged_messages
from ddpnb.reports.facts import Ended, Fact, Message, Speaker, Unknown
from ddpnb.reports.logs import Log

NAME = "known error texts"
_CLOSED = "failed on SocketImpl("
#: other formats read more of these lines: ranks, calls, which of several attempts was the last
_OTHERS = frozenset(
    {"Watchdog caught", "monitoredBarrier", "clients joined", "op.preamble.length", "NCCL WARN", "client socket has"}
)
_READ = tuple(word for word in words() if word not in _OTHERS)
MARKS = (*_READ, _CLOSED)

_STORE = re.compile(r"(?:recv|send)\w{1,20} failed on SocketImpl\([^)\n]{0,200}?remote=(?P<remote>[^)\n]{1,200})\)")
_RAISED = re.compile(r"(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,80}(?:Error|Exception): ")
_QUANTITY = re.compile(r"\d[\d.]{0,20} (?:bytes|[KMGT]i?B)")
_FEW = 3
_BEFORE = 80  # characters before them that are quoted too


def read(log: Log) -> Iterator[Fact]:
    """The errors, by the process that wrote them; and connections to a store that were closed."""
    seen: set[tuple[Speaker, str]] = set()
    for offset, text, explained in logged_messages(log.text, _READ):
        who, at = log.speaker_at(offset), log.quoted(_words_at(log.text, offset))
        if who.rank is None and explained.process:
            who = Speaker(None, explained.process)
        if explained.signal:
            yield Ended(who, Ending("died", -signal.Signals[explained.signal], message=text), at=at)
        elif (said := (who, _QUANTITY.sub("", explained.summary))) not in seen:
            seen.add(said)
            yield Message(who, _RAISED.sub("", text), at)
    closed = dict.fromkeys(match["remote"].strip() for match in _STORE.finditer(log.text))
    for remote in islice(closed, _FEW):
        yield Unknown(
            f"Why the connection to the store at {remote} was closed: the process that serves it, rank 0 or the launcher, ended (as at the "
            "end of each job), or the network failed. Collect the output of that host."
        )


def _words_at(text: str, offset: int) -> int:
    """Where the words begin that are quoted of a line: a long line says it behind names and times."""
    end = text.find("\n", offset)
    places = (text.find(word, offset, end if end >= 0 else len(text)) for word in _READ)
    return max(offset, min((place for place in places if place >= 0), default=offset) - _BEFORE)
