"""Comparing the replicas on demand: exact, off the process group, also while ranks hang."""

from __future__ import annotations

import base64
import time
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ddpnb.analysis import phrases
from ddpnb.analysis.drift import first_difference, models_of
from ddpnb.cluster import hotline
from ddpnb.cluster.engines import Engines
from ddpnb.errors import WorldError
from ddpnb.model.recording import Recording
from ddpnb.render.text import printable

ANSWER_S = 60.0
_VALUES_OF = 4  # tensors whose values are fetched to say by how much they differ


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that is not the same on all ranks.

    ``sides``: ranks that hold the same, the largest side first. ``largest``: the largest absolute
    difference of an element (of the first million), None where it was not looked at. ``norms``: the
    Euclidean norm on each rank where it is known.
    """

    model: int
    name: str
    sides: tuple[tuple[int, ...], ...]
    largest: float | None = None
    norms: Mapping[int, float] = field(default_factory=dict[int, float])

    def __str__(self) -> str:
        sides = " | ".join(phrases.ranks(side) for side in self.sides)
        text = f"{self.name}: {sides}"
        if self.largest is not None:
            text += f"; largest difference {self.largest:.6g}"
        if len({f"{norm:.7g}" for norm in self.norms.values()}) > 1:
            text += "; norm " + ", ".join(f"{norm:.6g} on {rank}" for rank, norm in sorted(self.norms.items())[:8])
        return text


@dataclass(frozen=True)
class Comparison:
    """What ``World.compare`` found.

    ``exact``: every byte of the models that live was digested now; otherwise the last samples of a
    run that is over were compared. ``steps``: optimizer steps of each rank. ``first_module``: with
    ``trace=True`` the first module, in order of execution, whose output differed, and on which ranks.
    """

    differences: tuple[TensorDifference, ...] = ()
    compared: int = 0
    exact: bool = True
    steps: Mapping[int, int] = field(default_factory=dict[int, int])
    first_module: str = ""
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all that was compared is the same on all ranks."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if not self.compared:
            head = "no replicas to compare"
        elif self.equal:
            head = f"the replicas are the same: {self.compared} tensors"
        else:
            head = f"{len(self.differences)} of {self.compared} tensors differ"
        lines = [head + ("" if self.exact or not self.compared else " (by the last samples of the run)")]
        lines += [f"  {one}" for one in self.differences[:12]]
        if len(self.differences) > 12:
            lines.append(f"  and {len(self.differences) - 12} more")
        if self.first_module:
            lines.append(f"first difference in forward: {self.first_module}")
        return printable("\n".join([*lines, *(f"note: {note}" for note in self.notes)]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def compare(engines: Engines, ranks: Sequence[int], trace: bool = False) -> Comparison:
    """Compare what lives on these ranks.

    Raises:
        WorldError: a rank did not answer.
    """
    answers = _ask(engines, ranks, {"verb": "compare"})
    models: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for rank, answer in answers.items():
        for told in answer.get("models", ()):
            models[int(told["model"])][rank] = told
    found: list[TensorDifference] = []
    compared, steps, notes = 0, {}, []
    for number, held in sorted(models.items()):
        if len(held) < 2:
            continue
        steps = {rank: int(told["step"]) for rank, told in held.items()}
        if len(set(steps.values())) > 1:
            notes.append("the ranks have made different numbers of optimizer steps: they were not at the same place.")
        tables = {rank: {str(n): (h, norm) for n, h, norm in told["tensors"]} for rank, told in held.items()}
        names = list(dict.fromkeys(name for table in tables.values() for name in table))
        compared += len(names)
        for name in names:
            sides: dict[Any, list[int]] = defaultdict(list)
            for rank in sorted(tables):
                sides[tables[rank].get(name, (None, None))[0]].append(rank)
            if len(sides) > 1:
                ordered = sorted(sides.values(), key=lambda side: (-len(side), side[0]))
                norms = {r: float(t[name][1]) for r, t in tables.items() if name in t and t[name][1] is not None}
                largest = (
                    _largest(engines, number, name, [side[0] for side in ordered]) if len(found) < _VALUES_OF else None
                )
                found.append(TensorDifference(number, name, tuple(map(tuple, ordered)), largest, norms))
    module, more = _traced(engines, ranks, models) if trace and models else ("", [])
    return Comparison(tuple(found), compared, True, steps, module, (*notes, *more))


def of_recording(recording: Recording) -> Comparison:
    """The same of a run that is over: its last samples are compared."""
    found: list[TensorDifference] = []
    compared = 0
    for number, models in models_of(recording).items():
        if len(models) < 2:
            continue
        compared += len(next(iter(models.values())).tensors)
        first = first_difference(recording, number)
        if first is None:
            continue
        for name in first.tensors:
            norms = {r: d.norm for r, s in first.samples.items() if (d := s.digests.get(name)) and d.norm is not None}
            found.append(TensorDifference(number, name, first.sides, None, norms))
    return Comparison(tuple(found), compared, False, {rank: r.steps for rank, r in recording.ranks.items()})


def _ask(engines: Engines, ranks: Sequence[int], content: dict[str, Any]) -> dict[int, dict[str, Any]]:
    answers = hotline.ask(engines, ranks, content, ANSWER_S)
    silent = [rank for rank in ranks if rank not in answers]
    if silent:
        raise WorldError(
            f"{phrases.ranks(silent)} did not answer.", "Look at world.snapshot(): a frozen rank cannot be compared."
        )
    return answers


def _largest(engines: Engines, model: int, name: str, ranks: Sequence[int]) -> float | None:
    """The largest absolute difference between the first rank's values and the others'."""
    answers = hotline.ask(engines, ranks, {"verb": "values", "model": model, "tensor": name}, ANSWER_S)
    values = [array("f", base64.b85decode(str(answer.get("values", "")))) for answer in answers.values()]
    if len(values) < 2 or len({len(one) for one in values}) > 1 or not values[0]:
        return None
    return max(max(abs(a - b) for a, b in zip(values[0], other, strict=True)) for other in values[1:])


def _traced(
    engines: Engines, ranks: Sequence[int], models: Mapping[int, Mapping[int, Mapping[str, Any]]]
) -> tuple[str, list[str]]:
    """The first module whose output differs in one forward that all ranks are about to make."""
    turns = {str(m): max(int(told["forwards"]) for told in held.values()) + 2 for m, held in models.items()}
    _ask(engines, ranks, {"verb": "trace", "turns": turns})
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        answers = _ask(engines, ranks, {"verb": "traced"})
        told = {rank: answer.get("traced", {}) for rank, answer in answers.items()}
        for model in turns:
            rows = {rank: one[model] for rank, one in told.items() if model in one and one[model]["done"]}
            if len(rows) == len(ranks) and len({row["turn"] for row in rows.values()}) == 1:
                return _first_module({rank: row["modules"] for rank, row in rows.items()})
        time.sleep(0.05)
    return "", ["no forward was made by all ranks in time: tracing needs a run that goes on."]


def _first_module(rows: Mapping[int, Sequence[Sequence[Any]]]) -> tuple[str, list[str]]:
    for calls in zip(*rows.values(), strict=False):
        if len({call[0] for call in calls}) > 1:
            return f"the ranks run different modules: {', '.join(sorted({str(call[0]) for call in calls}))}", []
        if len({call[2] for call in calls}) > 1:
            sides: dict[Any, list[int]] = defaultdict(list)
            for rank, call in zip(rows, calls, strict=True):
                sides[call[2]].append(rank)
            told = " | ".join(phrases.ranks(side) for side in sides.values())
            note = "with different batches the first module that sees them differs: give all ranks the same batch to find a cause."
            return f"{calls[0][0]} ({calls[0][1]}): {told}", [note]
    return "", ["no module's output differed."]
