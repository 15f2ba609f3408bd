"""``explain``: what an exception of torch, or of Python around it, means in distributed training.

A lost connection to a peer ("Connection closed by peer") is a secondary failure, which no entry of
errors.toml matches: ``ddpnb.rules.hangs.endings`` reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ddpnb.recording.messages.entries import explanation, words
from ddpnb.recording.messages.explained import THIS, Explained, Raised, blamed
from ddpnb.recording.messages.sentences import numbers
from ddpnb.recording.messages.tracebacks import LoggedError, read
from ddpnb.recording.stacks import Frame

_LONGEST_TEXT = 1_000_000
_MOST_EXCEPTIONS = 400
_MOST_LINES, _LONGEST_LINE = 400, 2000
_FOLLOWING = re.compile(r"\n(?=\s{0,8}\n|\[|Traceback|\s{0,8}File )")
_NESTED = re.compile(r"Traceback \(most recent call last\)")
_CALLBACK = re.compile(r"^Got the following error when running the callback: (\w{1,80}): ")
_CHECKPOINT_RANKS = re.compile(r"CheckpointException ranks:dict_keys\(\[([\d, ]{1,20000})\]\)")


def explain(
    message: str,
    exception: str = "",
    *,
    names: Sequence[str] = (),
    frames: Sequence[Frame] = (),
    sources: Mapping[str, str] | None = None,
    traceback: str = "",
    frozen: Sequence[str] = (),
) -> Explained | None:
    """What an error means and what to change; None if it is not one of distributed training.

    Args:
        message: the exception's text.
        exception: the name of its class.
        names: the model's parameters as DDP counts them: those that required a gradient when it was
            wrapped, in the order of ``named_parameters()``.
        frames: where it was raised, outermost first.
        sources: the text of the user's files, by the names that the frames use.
        traceback: the whole text, chained exceptions included, if it is known.
        frozen: the parameters that were recorded to be frozen since the model was wrapped.
    """
    quoted = {place: line for error in read(traceback) for place, line in error.quoted.items()} if traceback else {}
    return _explain(
        Raised.of(
            message,
            exception,
            names=names,
            frames=frames,
            sources=sources or {},
            quoted=quoted,
            traceback=traceback[-_LONGEST_TEXT:],
            frozen=frozen,
        )
    )


def _explain(raised: Raised) -> Explained | None:
    if match := _CALLBACK.match(raised.text):
        raised = replace(raised, text=raised.text[match.end() :], exception=match[1])
    inside = _NESTED.search(raised.text)
    if inside is None:
        return _first(raised)
    return _nested(raised) or _first(replace(raised, text=raised.text[: inside.start()].strip()))


def _first(raised: Raised) -> Explained | None:
    known = explanation(raised)
    return known[1] if known is not None else None


def _nested(raised: Raised) -> Explained | None:
    """A message that holds the traceback of another process: a worker's, a spawned rank's, a checkpoint's."""
    for error in reversed(read(raised.text)[-_MOST_EXCEPTIONS:]):
        inner = _raised(error)
        explained = _first(
            replace(inner, names=raised.names, sources=raised.sources, traceback=raised.text, frozen=raised.frozen)
        )
        if explained is not None:
            ranks = _CHECKPOINT_RANKS.search(raised.text)
            return replace(explained, culprits=numbers(ranks[1])) if ranks and explained.culprits is None else explained
    return None


def _raised(error: LoggedError) -> Raised:
    return Raised.of(error.message, error.exception, frames=error.frames, quoted=error.quoted, traceback=error.cause)


def explain_text(text: str) -> list[Explained]:
    """The errors of a log or a traceback, the last first; the last megabyte of it is read.

    An error that several ranks raise is reported once, with the ranks that they blame together.
    """
    text = text[-_LONGEST_TEXT:]
    errors: dict[tuple[str, str], dict[int, Explained]] = {}
    exceptions = read(text)[-_MOST_EXCEPTIONS:]
    for turn, error in enumerate(reversed(exceptions)):
        explained = _explain(_raised(error))
        if explained is not None:
            raised = next((rank for rank in explained.holds if rank != THIS), _MOST_EXCEPTIONS - turn)
            rank = raised if error.rank is None else error.rank
            # Of models that differ each rank reports another pair: together they show which is odd.
            summary = "" if explained.code == "DDP403" else explained.summary
            errors.setdefault((explained.code, summary), {})[rank] = explained
    codes = {code for code, _ in errors}
    lines = {message: explained for _, message, explained in logged_messages(text)}
    for explained in reversed(list(lines.values())[-_MOST_EXCEPTIONS:]):
        if explained.code not in codes:  # a log line repeats what its exception says
            errors.setdefault((explained.code, explained.summary), {})[0] = explained
    if not errors and not exceptions:  # a message without its traceback
        explained = _explain(Raised.of(text.strip()))
        return [explained] if explained is not None else []
    return [_together(by_rank) for by_rank in errors.values()]


def logged_messages(text: str, some: Iterable[str] = ()) -> Iterator[tuple[int, str, Explained]]:
    """(where it begins, the message, what it means) of the errors of a text that no exception contains, in its order.

    Args:
        text: of a log.
        some: the words that are looked for; empty: all that errors.toml calls ``logged``.
    """
    starts: dict[int, int] = {}  # the end of each line, by its beginning
    for word in some or words():
        place, seen = text.find(word), 0
        while place >= 0 and seen < _MOST_LINES:
            start, end = max(text.rfind("\n", 0, place) + 1, place - _LONGEST_LINE), text.find("\n", place)
            end = min(end if end >= 0 else len(text), place + _LONGEST_LINE)
            starts[start], seen = end, seen + 1
            place = text.find(word, end)
    for start, end in sorted(starts.items()):
        line = text[start:end].strip()
        explained = explain(line)
        if explained is not None:
            whole = _FOLLOWING.split(text[start : end + _LONGEST_LINE], maxsplit=1)[0].strip()
            more = explain(whole)  # names of parameters may follow in the next lines
            if more is not None and more != explained and more.code == explained.code:
                line, explained = whole, more
            yield start, line, explained


def _together(by_rank: Mapping[int, Explained]) -> Explained:
    culprits, sides = blamed(by_rank)
    first = next(
        (explained for explained in by_rank.values() if explained.culprits == culprits), next(iter(by_rank.values()))
    )
    missing = {rank for explained in by_rank.values() for rank in explained.missing}
    return replace(first, culprits=culprits, sides=sides, missing=tuple(sorted(missing)))
