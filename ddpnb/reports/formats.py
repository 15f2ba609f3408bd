"""The formats of logs and of other texts: each is given the logs in which one of its marks occurs."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.reports import (
    debug_pages,
    desync,
    exceptions,
    faulthandler_dumps,
    launchers,
    messages,
    mismatches,
    nccl,
    pyspy,
    ras,
    script_checkpoints,
    watchdog,
)
from ddpnb.reports.facts import NOBODY, Ended, Extent, Fact, Found, Identity, Message
from ddpnb.reports.logs import Log
from ddpnb.reports.times import times_of


@dataclass(frozen=True)
class Format:
    """A format of texts.

    Args:
        name: in words, for the reader.
        marks: a log in which none of these occurs is not given to it.
        read: the facts of a log.
    """

    name: str
    marks: tuple[str, ...]
    read: Callable[[Log], Iterator[Fact]]


_MOST_FACTS = 200_000
_DEVICE = re.compile(r"\b(?:CUDA|HIP) error: (?!out of memory)")  # after which the process is aborted as it ends
TEXT = tuple(
    Format(module.NAME, module.MARKS, module.read)
    for module in (
        debug_pages,
        watchdog,
        desync,
        messages,  # what the kernel says of a process is the cause of what a launcher says of it
        exceptions,
        launchers,
        mismatches,
        nccl,
        ras,
        pyspy,
        faulthandler_dumps,
        script_checkpoints,
    )
)


def facts_of(log: Log, check: Callable[[], None] = lambda: None) -> list[Found]:
    """The facts of a log, by format; a log may contain several.

    Args:
        log: from ``logs.read``.
        check: called after each fact; it raises where reading takes too long.

    Returns:
        One entry for each format that found something, in the order of ``TEXT``.

    Raises:
        UsageError: it has more facts than a log of a job.
    """
    found: list[tuple[str, Fact]] = []  # with the name of their format
    for text in TEXT:
        if any(mark in log.text for mark in text.marks):
            before = len(found)
            for fact in text.read(log):
                found.append((text.name, fact))
                check()
            check()
            if len(found) - before > _MOST_FACTS:
                raise UsageError(
                    f"{arguments.short(log.path)} repeats itself too often for a log.", "Give its last part."
                )
    # Prefixes that name both rank and process connect the lines that name one of them.
    identities = [
        Identity(speaker) for speaker in dict.fromkeys(log.speakers) if speaker.rank is not None and speaker.pid
    ]
    found = [*((found[0][0], fact) for fact in identities), *found] if found else []
    by_format: dict[str, list[Fact]] = {}
    for name, fact in _without_repeats(_with_ranks(found)):
        by_format.setdefault(name, []).append(fact)
    extent = _extent(log, [fact for facts in by_format.values() for fact in facts])
    return [Found(log.path, name, tuple(facts), extent) for name, facts in by_format.items()]


def _extent(log: Log, facts: Sequence[Fact]) -> Extent:
    """What a log is of that which the ranks wrote."""
    ranks = {speaker.rank for speaker in set(log.speakers) if speaker.rank is not None}
    last = log.origin.numbers[-1] if log.origin.numbers else len(log.starts)
    cut = not log.origin.whole and any(
        (at := getattr(fact, "at", None)) is not None and at.number == last for fact in facts
    )
    ends_first = sorted(facts, key=lambda fact: not isinstance(fact, Ended))
    lines = (at for fact in ends_first if (at := getattr(fact, "at", None)) is not None)
    return Extent(
        frozenset(ranks), log.origin.excerpt, cut, log.origin.inferred, times_of(*log.origin.raw, dict.fromkeys(lines))
    )


def _with_ranks(found: Sequence[tuple[str, Fact]]) -> list[tuple[str, Fact]]:
    """Exceptions without a rank, where their message names it, or where as many ranks exited with status 1, as Python does."""
    ended = [fact for _, fact in found if isinstance(fact, Ended)]
    nobody = [fact for fact in ended if fact.speaker == NOBODY and fact.ending.how == "raised"]
    said = {fact.text: fact.speaker for _, fact in found if isinstance(fact, Message) and fact.speaker.rank is not None}
    speakers = {id(fact): said[fact.ending.message] for fact in nobody if fact.ending.message in said}
    codes = (1, -signal.SIGABRT) if all(_DEVICE.search(fact.ending.message) for fact in nobody) else (1,)
    failed = {
        fact.speaker.rank: fact.speaker for fact in ended if fact.ending.code in codes and fact.speaker.rank is not None
    }
    known = {fact.speaker.rank for fact in ended if fact.ending.how == "raised"}
    if len(set(map(_plain, nobody))) == 1 and len(failed) == len(nobody) and not known & set(failed) and not speakers:
        speakers = dict(zip(map(id, nobody), failed.values(), strict=True))
    return [
        (name, replace(fact, speaker=speakers[id(fact)]) if isinstance(fact, Ended) and id(fact) in speakers else fact)
        for name, fact in found
    ]


def _plain(fact: Ended) -> tuple[object, ...]:
    """What several ranks that fail alike have alike: the numbers in their messages may differ."""
    ending = fact.ending
    frame = ending.innermost_user
    return ending.exception, re.sub(r"\d", "", ending.message), frame.site if frame is not None else None


def _without_repeats(found: Sequence[tuple[str, Fact]]) -> Iterator[tuple[str, Fact]]:
    """Without messages that repeat what the exception of the same rank says, or another message."""
    raised = [fact for _, fact in found if isinstance(fact, Ended) and fact.ending.how == "raised"]
    ranks = {fact.speaker.rank for fact in raised} - {None}
    texts = [fact.text for _, fact in found if isinstance(fact, Message)]
    said = {fact.ending.message for fact in raised}
    repeated = _repeated([*texts, *said]) | said
    for name, fact in found:
        if not isinstance(fact, Message) or not (fact.text in repeated or fact.speaker.rank in ranks):
            yield name, fact


_MOST_TEXTS = 500


def _repeated(texts: list[str]) -> set[str]:
    """The texts that are a part of another one."""
    some = list(dict.fromkeys(text for text in texts if text))[:_MOST_TEXTS]
    return {text for text in some if any(text != other and text in other for other in some)}
