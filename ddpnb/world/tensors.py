"""One tensor on every rank: its values in numbers, a histogram, and where two ranks differ. Without the process group."""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ddpnb.errors import UsageError
from ddpnb.recording import arguments, phrases, verbs
from ddpnb.recording.names import UNDECODABLE, given_name
from ddpnb.recording.split import by_value, split
from ddpnb.recording.tensors import BINS, LOOKED_AT, MAX_NAME, PIECE, TensorFacts, ValueDifference, facts_of, path
from ddpnb.render.document import Block
from ddpnb.render.shown import Shown
from ddpnb.render.tensors import document
from ddpnb.world.ranks import ANSWER_S, Ranks

_SIDES = 4  # whose values are compared element by element
_PIECES = 32  # that differ and are compared element by element: a million elements
_OFFERED = 1000  # names
_OF_A_MODEL = re.compile(r"[\w.]+")
_CODES = {"f", "d", "q"}


@dataclass(frozen=True, repr=False)
class TensorByRank(Shown):
    """A tensor on each rank, made by ``World.tensor``.

    ``ranks``: rank -> ``TensorFacts``. ``errors``: rank -> why its tensor could not be read. ``low`` and ``high``: between
    which values the bins of all histograms lie, None if no element is finite. ``sides``: groups of ranks whose tensors are
    equal in dtype, shape and every byte that was read, the largest group first. ``differences``: for pairs of one rank of
    the first side and one of another side of equal shape, where their values differ.

    Example:
        >>> found = world.tensor("model.fc.weight")
        >>> found.ranks[1].norm
        3.1523
        >>> found.equal
        False
    """

    name: str
    ranks: Mapping[int, TensorFacts] = field(default_factory=dict[int, TensorFacts])
    errors: Mapping[int, str] = field(default_factory=dict[int, str])
    low: float | None = None
    high: float | None = None
    sides: tuple[tuple[int, ...], ...] = ()
    differences: tuple[ValueDifference, ...] = ()
    notes: tuple[str, ...] = ()
    _label: ClassVar[str] = "tensor on each rank"

    @property
    def equal(self) -> bool:
        """Whether the tensor was read on all ranks and is the same on them."""
        return len(self.sides) == 1 and not self.errors

    def _document(self) -> list[Block]:
        return document(self)


def tensor(
    ranks: Ranks, name: str, frame: int | None, chosen: int | Iterable[int] | None, timeout: float
) -> TensorByRank:
    """See ``World.tensor``."""
    _check(name, frame)
    arguments.seconds("timeout", timeout)
    with ranks.opened():
        asked = ranks.chosen(chosen)
        dead = [rank for rank in range(ranks.size) if rank not in asked] if chosen is None else []
        whose = {"name": name.strip(), "frame": frame, "timeout": timeout}
        awake = [rank for rank in asked if not ranks.processes.stopped(rank)]
        answers = ranks.ask(awake, verbs.Tensor(**whose), timeout + ANSWER_S)
        ranks.processes.check_connection()
        errors = dict.fromkeys(dead, "its process is dead")
        errors |= {rank: _why_silent(ranks, rank) for rank in asked if rank not in answers}
        facts, digests = _read(answers, errors)
        if not facts:
            raise UsageError(*_none_has_it(name, errors))
        low, high = _between(facts.values())
        if low is not None and high is not None:
            counted = ranks.ask(list(facts), verbs.Histogram(**whose, low=low, high=high), timeout + ANSWER_S)
            facts = {rank: replace(one, counts=_counts(counted.get(rank))) for rank, one in facts.items()}
        sides = split({rank: (one.dtype, one.shape, digests[rank]) for rank, one in facts.items()}).sides
        differences = _differences(ranks, sides, facts, digests, whose)
    return TensorByRank(
        name.strip(), facts, dict(sorted(errors.items())), low, high, sides, differences, tuple(_notes(ranks, facts))
    )


def names(ranks: Ranks, frame: int | None) -> tuple[str, ...]:
    """See ``World.tensor_names``."""
    _check("tensor", frame)
    with ranks.opened():
        answers = ranks.ask(ranks.alive(), verbs.Tensors(frame=frame))
    counts: dict[str, int] = defaultdict(int)
    for answer in answers.values():
        for one in answer.names[:_OFFERED]:
            counts[given_name(one)] += 1
    return tuple(sorted(counts, key=lambda one: -counts[one]))[:_OFFERED]


def _check(name: object, frame: object) -> None:
    if frame is not None:
        arguments.whole("frame", frame, 0)
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
        raise UsageError(f"a tensor is named by a text, not by {arguments.short(name)}.", 'Such as "model.fc.weight".')
    if path(name) is None and not _OF_A_MODEL.fullmatch(name.strip()):
        raise UsageError(
            f"{name.strip()!r} is no path to a tensor: a variable, followed by attributes and items.",
            f"world.evaluate({name.strip()!r}) evaluates any expression.",
        )


def _why_silent(ranks: Ranks, rank: int) -> str:
    if not ranks.processes.alive(rank):
        return "its process is dead"
    if ranks.processes.stopped(rank):
        return "its process is stopped (SIGSTOP)"
    return "it did not answer: unresponsive"


def _none_has_it(name: str, errors: Mapping[int, str]) -> tuple[str, str]:
    """What to say when no rank has the tensor, and what to do."""
    by_why = by_value((rank, why.removesuffix(".")) for rank, why in errors.items())
    why = "; ".join(f"{phrases.ranks(known)}: {why}" for why, known in list(by_why.items())[:4])
    return f"{name.strip()!r} could not be read. {why}." if why else "no rank is alive.", (
        "world.tensor_names() lists the tensors of the frame and of the models."
    )


def _read(
    answers: Mapping[int, verbs.TensorRead], errors: dict[int, str]
) -> tuple[dict[int, TensorFacts], dict[int, tuple[str, ...]]]:
    facts: dict[int, TensorFacts] = {}
    for rank, answer in sorted(answers.items()):
        if answer.error:
            errors[rank] = " ".join(answer.error[:600].split())
            continue
        try:
            facts[rank] = facts_of(answer.numbers)
        except UNDECODABLE:
            errors[rank] = "its answer is invalid"
    return facts, {rank: answers[rank].digests for rank in facts}


def _between(facts: Iterable[TensorFacts]) -> tuple[float | None, float | None]:
    known = [(one.low, one.high) for one in facts if one.low is not None and one.high is not None]
    known = [(low, high) for low, high in known if math.isfinite(low) and math.isfinite(high)]
    if not known:
        return None, None
    return min(low for low, _ in known), max(high for _, high in known)


def _counts(answer: verbs.Counts | None) -> tuple[int, ...]:
    return answer.counts if answer is not None and len(answer.counts) == BINS and min(answer.counts) >= 0 else ()


def _differences(
    ranks: Ranks,
    sides: Sequence[Sequence[int]],
    facts: Mapping[int, TensorFacts],
    digests: Mapping[int, Sequence[str]],
    whose: dict[str, Any],
) -> tuple[ValueDifference, ...]:
    """The values of the first rank of the first side, against those of the first rank of others."""
    found: list[ValueDifference] = []
    first = sides[0][0]
    for other in (side[0] for side in sides[1:_SIDES]):
        if facts[other].shape != facts[first].shape or len(digests[other]) != len(digests[first]):
            continue
        # Of another dtype every digest differs.
        differing = [place for place, (a, b) in enumerate(zip(digests[first], digests[other], strict=True)) if a != b]
        every = max(1, -(-_stored(facts[first]) // LOOKED_AT))
        numbers = [place * every for place in differing[:_PIECES]]
        answers = ranks.ask((first, other), verbs.Pieces(**whose, numbers=tuple(numbers)), whose["timeout"] + ANSWER_S)
        mine, others = (_values(answers.get(rank), len(numbers)) for rank in (first, other))
        if mine is not None and others is not None:
            difference = compare((first, other), mine, others, numbers, facts[first], more=len(differing) > _PIECES)
            if difference is not None:
                found.append(difference)
    return tuple(found)


def _stored(facts: TensorFacts) -> int:
    """A complex element counts as two: its real and its imaginary part."""
    return math.prod(facts.shape) * (2 if facts.dtype.startswith("complex") else 1)


def _values(answer: verbs.PiecesRead | None, count: int) -> list[array[Any]] | None:
    """The elements of pieces; None if the answer is not as it must be."""
    pieces = answer.pieces if answer is not None else ()
    if len(pieces) != count or any(one.code not in _CODES for one in pieces):
        return None
    try:
        return [array(one.code, one.values) for one in pieces]
    except ValueError:  # not whole elements
        return None


def compare(
    pair: tuple[int, int],
    mine: Sequence[Sequence[float]],
    others: Sequence[Sequence[float]],
    numbers: Sequence[int],
    facts: TensorFacts,
    *,
    more: bool = False,
) -> ValueDifference | None:
    """Compare two ranks element by element.

    Args:
        pair: the ranks.
        mine, others: the elements of pieces.
        numbers: of these pieces.
        facts: of the first rank's tensor.
        more: further pieces differ.

    Returns:
        Where they differ; None if the pieces do not have the same sizes (the tensor was replaced meanwhile).
    """
    elements, largest, first, values = 0, 0.0, None, None
    for number, own, other in zip(numbers, mine, others, strict=True):
        if len(own) != len(other):
            return None
        for at, (a, b) in enumerate(zip(own, other, strict=True)):
            if a == b or (math.isnan(a) and math.isnan(b)):
                continue
            elements += 1
            if first is None:
                first, values = _index(number * PIECE + at, facts), (float(a), float(b))
            apart = abs(a - b)
            if apart > largest and apart != math.inf:
                largest = float(apart)
    # Pieces that were not fetched are equal, as far as they were read.
    return ValueDifference(pair, elements, min(facts.looked_at, _stored(facts)), largest, first, values, more)


def _index(flat: int, facts: TensorFacts) -> tuple[int, ...]:
    shape = (*facts.shape, 2) if facts.dtype.startswith("complex") else facts.shape
    found: list[int] = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        found.append(at)
    return tuple(reversed(found))


def _notes(ranks: Ranks, facts: Mapping[int, TensorFacts]) -> list[str]:
    notes: list[str] = []
    steps = {rank: one.step for rank, one in facts.items() if one.step is not None}
    if len(set(steps.values())) > 1:
        told = ", ".join(f"{step} on {rank}" for rank, step in list(steps.items())[:8])
        notes.append(
            f"the ranks have made different numbers of optimizer steps ({told}): they differ for that reason alone."
        )
    monitor = ranks.last_monitor
    if monitor is not None and not monitor.known.is_set() and not any(map(ranks.processes.stopped, facts)):
        notes.append(
            "the run is in progress: unless the ranks are held or wait, their values are of different moments."
        )
    if any(one.dtype.startswith("complex") for one in facts.values()):
        notes.append("a complex element counts as two: its real part and its imaginary part.")
    sampled = next((one for one in facts.values() if one.looked_at < _stored(one)), None)
    if sampled is not None:
        notes.append(
            f"{sampled.looked_at:,} of {_stored(sampled):,} elements were read, in parts of {PIECE:,} that lie evenly over "
            "the tensor: all numbers are of these."
        )
    return notes
