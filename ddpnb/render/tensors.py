"""A tensor by rank: a row per rank with its values in numbers and a histogram, and where two ranks differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ddpnb.recording import phrases
from ddpnb.recording.split import by_value
from ddpnb.recording.tensors import TensorFacts, ValueDifference
from ddpnb.render.document import Block, Cell, Drawn, Icon, Paragraph, Span, Table

_RANKS = 32  # rows
_WIDE, _HIGH = 96, 22  # of a histogram
_BARS = " ▁▂▃▄▅▆▇█"


class Shown(Protocol):
    """What is shown: ``ddpnb.TensorByRank``."""

    @property
    def name(self) -> str: ...
    @property
    def ranks(self) -> Mapping[int, TensorFacts]: ...
    @property
    def errors(self) -> Mapping[int, str]: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def sides(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def differences(self) -> tuple[ValueDifference, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


_HEAD = ("rank", "min", "max", "mean", "norm", "NaN", "Inf", "zeros", "histogram")


def document(found: Shown) -> list[Block]:
    """What differs, a row for each rank, and sentences; ranks that differ from the most are marked."""
    side_of = {rank: number for number, side in enumerate(found.sides) for rank in side}
    highest = max((max(one.counts, default=0) for one in found.ranks.values()), default=0)
    rows = [_row(rank, found.ranks[rank], side_of.get(rank, 0), highest) for rank in _shown(found)]
    role, image = ("ok", "done") if len(found.sides) == 1 else ("error", "warning")
    verdict = [Paragraph(Icon(image), _verdict(found), kind=role)] if len(found.ranks) > 1 else []
    return [
        Paragraph(Span(found.name[:120], "mono"), f": {kind(found)}"[:400]),
        *verdict,
        Table(f"{found.name[:80]} on each rank", _HEAD, rows, "mono tensor"),
        *(Paragraph(words[:600], kind=role) for role, words in _sentences(found)),
    ]


def kind(found: Shown) -> str:
    """Type, shape and device; what differs between ranks, by rank."""
    kinds: dict[str, list[int]] = {}
    for rank, one in found.ranks.items():
        shape = ", ".join(map(str, one.shape))
        words = f"{one.dtype} [{shape}] on {one.device}{', requires grad' if one.requires_grad else ''}"
        kinds.setdefault(words, []).append(rank)
    # One GPU each is as it should be.
    plain = {words.partition(" on ")[0] for words in kinds}
    if len(plain) == 1 and len({one.requires_grad for one in found.ranks.values()}) == 1:
        one = next(iter(found.ranks.values()))
        devices = ", ".join(list(dict.fromkeys(one.device for one in found.ranks.values()))[:8])
        return f"{next(iter(plain))} on {devices}{', requires grad' if one.requires_grad else ''}"
    return "; ".join(f"{words} ({phrases.ranks(ranks)})" for words, ranks in kinds.items())


def described(one: TensorFacts) -> str:
    """A tensor of one rank in a line, as variables are written: ``tensor[4, 2] float32 cpu norm 3.2``."""
    norm = f" norm {_short(one.norm)}" if one.norm is not None else ""
    return f"tensor{list(one.shape)} {one.dtype} {one.device}{norm}"


def _verdict(found: Shown) -> str:
    ranks = phrases.ranks(list(found.ranks))
    if len(found.sides) == 1:
        return f"equal on {ranks}, byte for byte."
    return f"differs: {' | '.join(phrases.ranks(side) for side in found.sides[:8])}{' | …' if len(found.sides) > 8 else ''}."


def _sentences(found: Shown) -> list[tuple[str, str]]:
    """What stands below the table, with the role of each."""
    said = [("", difference(one)) for one in found.differences]
    shapes = {one.shape for one in found.ranks.values()}
    if len(shapes) > 1:
        said.append(("", "Values of different shapes are not compared."))
    said += [("error", f"rank {rank}: {why}") for rank, why in list(found.errors.items())[:8]]
    if found.low is not None:
        said.append(("faint", f"Histogram: {_short(found.low)} to {_short(found.high)}, the same bins on all ranks."))
    places = by_value((rank, one.where) for rank, one in found.ranks.items())
    said += [("faint", f"{phrases.ranks(ranks)}: {where}") for where, ranks in list(places.items())[:8] if where]
    if len(found.ranks) > _RANKS:
        said.append(("faint", f"{_RANKS} of {len(found.ranks)} ranks shown, those that differ first."))
    return said + [("faint", f"note: {note}") for note in found.notes]


def difference(one: ValueDifference) -> str:
    """Where two ranks differ, in a sentence."""
    pair = f"ranks {one.ranks[0]} and {one.ranks[1]}"
    if not one.elements:
        return f"{pair}: no element differs in value (-0.0 and 0.0, or the bits of NaN)."
    values = f"{_short(one.values[0])} and {_short(one.values[1])}" if one.values is not None else ""
    if one.compared == 1:
        return f"{pair}: {values}; they differ by {one.largest:.6g}."
    at = f" at [{', '.join(map(str, one.first))}] ({values})" if one.first is not None else ""
    count = f"{'at least ' if one.more else ''}{one.elements:,} of {one.compared:,} elements"
    return f"{pair}: {count} {phrases.verb(range(one.elements), 'differs', 'differ')}, the first{at}; largest difference {one.largest:.6g}."


def _shown(found: Shown) -> list[int]:
    """The ranks with a row; of many, those of the small sides first."""
    if len(found.ranks) <= _RANKS:
        return list(found.ranks)
    rare = [rank for side in reversed(found.sides) for rank in side]
    return sorted(rare[:_RANKS])


def _numbers(one: TensorFacts) -> list[str]:
    return [*map(_short, (one.low, one.high, one.mean, one.norm)), *map(str, (one.nans, one.infs, one.zeros))]


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _row(rank: int, one: TensorFacts, side: int, highest: int) -> list[Cell]:
    wrong = {"NaN": one.nans > 0, "Inf": one.infs > 0}
    numbers = [Cell((words,), wrong.get(head, False)) for head, words in zip(_HEAD[1:-1], _numbers(one), strict=True)]
    return [
        Cell((str(rank),), bool(side)),
        *numbers,
        Cell((Drawn(histogram(one.counts, highest), _blocks(one.counts)),)),
    ]


def histogram(counts: Sequence[int], highest: int) -> str:
    """The counts as bars; ``highest``: the largest count of all ranks, so that rows can be compared."""
    if not counts or not highest:
        return ""
    step = _WIDE / len(counts)
    bars = "".join(
        f"M{at * step:.1f} {_HIGH}v-{max(1.0, _HIGH * count / highest):.1f}h{step - 0.6:.1f}V{_HIGH}z"
        for at, count in enumerate(counts)
        if count
    )
    top = counts.index(max(counts))
    words = f"{sum(counts):,} finite elements in {len(counts)} bins; most, {max(counts):,}, in bin {top + 1}"
    return (
        f'<svg class="histogram" viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{words}"><path d="{bars}"/></svg>'
    )


def _blocks(counts: Sequence[int]) -> str:
    highest = max(counts, default=0)
    return "".join(_BARS[-(-8 * count // highest)] for count in counts) if highest else ""
