"""Compare the replicas on demand: exactly, without the process group, also while ranks hang."""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpnb.errors import WorldError
from ddpnb.ranks.rank_processes import RankView
from ddpnb.recording import phrases, verbs
from ddpnb.recording.events.runs import FaultTriggered
from ddpnb.recording.facts.digests import first_difference, models_of
from ddpnb.recording.recording import Recording
from ddpnb.recording.split import by_value, split
from ddpnb.recording.verbs import A, Request
from ddpnb.render.document import Block, Group, Paragraph
from ddpnb.render.shown import Shown
from ddpnb.texts import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ANSWER_S = 60.0
TRACE_S = 60.0
_MOVES_S = 5.0  # within which ranks that train make a forward
_LEAD = 2  # forwards ahead of the furthest rank; more where the ranks are faster than the questions
_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module")  # under which a wrapper holds the module
_WRITTEN = 12  # tensors that differ
_VALUES_OF = 4  # tensors whose values are fetched to say by how much they differ


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that differs between ranks.

    ``sides``: groups of ranks with equal values, the largest group first. ``largest``: the largest absolute
    difference of an element (among the first million), None if not computed. ``norms``: the Euclidean norm
    on each rank, where known. ``gradient``: its gradient differs, rather than the tensor itself.
    """

    model: int
    name: str
    sides: tuple[tuple[int, ...], ...]
    largest: float | None = None
    norms: Mapping[int, float] = field(default_factory=dict[int, float])
    gradient: bool = False

    def __str__(self) -> str:
        sides = " | ".join(phrases.ranks(side) for side in self.sides)
        text = f"{'gradient of ' if self.gradient else ''}{self.name}: {sides}"
        if self.largest is not None:
            text += f"; largest difference {self.largest:.6g}"
        if len({f"{norm:.7g}" for norm in self.norms.values()}) > 1:
            text += "; norm " + ", ".join(f"{norm:.6g} on {rank}" for rank, norm in sorted(self.norms.items())[:8])
        return text


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """The result of ``World.compare``.

    ``exact``: every byte of the live models was compared; otherwise the last samples of a completed run were.
    ``steps``: optimizer steps of each rank. ``first_module``: with ``trace=True`` the first module, in order
    of execution, whose output differs, and on which ranks.
    """

    _label = "comparison of the replicas"

    differences: tuple[TensorDifference, ...] = ()
    compared: int = 0
    exact: bool = True
    steps: Mapping[int, int] = field(default_factory=dict[int, int])
    first_module: str = ""
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all compared tensors are equal on all ranks."""
        return not self.differences

    def label(self, difference: TensorDifference) -> str:
        """The name of a tensor that differs, with its model where several have one of this name."""
        models = {one.model for one in self.differences if one.name == difference.name}
        of = f" of model {difference.model}" if len(models) > 1 else ""
        return f"{'gradient of ' if difference.gradient else ''}{difference.name}{of}"

    def __bool__(self) -> bool:
        return self.equal

    def _document(self) -> list[Block]:
        shown: list[Block] = [Paragraph(self._headline), *(Paragraph(str(one)) for one in self.differences[:_WRITTEN])]
        if len(self.differences) > _WRITTEN:
            shown.append(Paragraph(f"and {len(self.differences) - _WRITTEN} more"))
        more = [f"first difference in forward: {self.first_module}"] if self.first_module else []
        return [Group(shown), *map(Paragraph, (*more, *(f"note: {note}" for note in self.notes)))]

    @property
    def _headline(self) -> str:
        if not self.compared:
            return "no replicas to compare"
        equal = f"replicas are identical: {self.compared} tensors"
        head = equal if self.equal else f"{len(self.differences)} of {self.compared} tensors differ"
        return head + ("" if self.exact else " (according to the last samples of the run)")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw which ranks hold equal values of which tensor, and the norms.

        Args:
            ax: Axes to draw on; None: those of a new figure, which a notebook shows.

        Returns:
            The Axes; ``ax.figure.savefig()`` saves the figure.

        Raises:
            UsageError: ``ax`` is something else.

        Example:
            >>> world.compare().plot()
        """
        from ddpnb.render.figures.replicas import differences

        rows = [(one.name, one.sides, one.largest, one.norms) for one in self.differences]
        return differences(rows, self.compared, ax)


def compare(processes: RankView, ranks: Sequence[int], trace: bool = False, moving: bool = False) -> Comparison:
    """Compare what lives on these ranks.

    Args:
        processes, ranks: whom to ask.
        trace: follow one forward module by module.
        moving: the ranks may be training: then a forward is compared that all of them are about to make.

    Raises:
        WorldError: a rank did not answer.
    """
    models = _by_model({rank: answer.models for rank, answer in _ask(processes, ranks, verbs.Compare()).items()})
    notes: list[str] = []
    for number in [n for n, held in models.items() if len({told.hash for told in held.values()}) > 1]:
        del models[number]
        notes.append(
            "a model is not compared: its ranks compute different kinds of digests. Install xxhash in the environments "
            "of all ranks, or of none."
        )
    module = ""
    aligned = _next_forward(processes, ranks, models, trace) if models and moving else {}
    models |= aligned
    if trace and aligned:
        traced = [_first_module({rank: one.modules for rank, one in told.items()}) for told in aligned.values()]
        module, more = next((one for one in traced if one[0]), traced[-1])
        notes += more
    elif trace and models:
        notes.append("not all ranks ran a forward in time: tracing needs a run in progress.")
    found: list[TensorDifference] = []
    compared, steps, known = 0, {}, list[dict[int, set[tuple[str, str]]]]()
    for number, held in sorted(models.items()):
        contents = {rank: _contents(told) for rank, told in held.items()}
        again = (all(contents[rank] <= one.get(rank, set()) for rank in contents) for one in known)
        if len(held) < 2 or any(again):  # the same model, wrapped a second time, or as its optimizer holds it
            continue
        known.append(contents)
        steps = {rank: told.step for rank, told in held.items()}
        if len(set(steps.values())) > 1:
            notes.append(
                "the ranks have made different numbers of optimizer steps, so they are at different points of the run."
            )
        differences, count = _differences(processes, number, held, values=not moving)
        found += differences
        compared += count
        buffers = {name for told in held.values() for name in told.buffers}
        if number not in aligned and any(one.name in buffers for one in differences):
            notes.append("buffers may differ until DDP broadcasts them at the next forward.")
    return Comparison(tuple(found), compared, True, steps, module, tuple(notes))


Held = dict[int, dict[int, verbs.Model]]  # model -> rank -> what the rank reported of it


def _by_model(told: Mapping[int, Sequence[verbs.Model]]) -> Held:
    models: Held = defaultdict(dict)
    for rank, ones in told.items():
        for one in ones:
            models[one.model][rank] = one
    return models


def _contents(model: verbs.Model) -> set[tuple[str, str]]:
    """Names, without those of wrappers, and digests: of a wrapper they are those of its inner module."""
    return {
        (".".join(p for p in str(name).split(".") if p not in _WRAPPERS), repr(digest))
        for name, digest, _ in model.tensors
    }


def _differences(
    processes: RankView, number: int, held: Mapping[int, verbs.Model], values: bool
) -> tuple[list[TensorDifference], int]:
    tables = {rank: {str(name): (digest, norm) for name, digest, norm in told.tensors} for rank, told in held.items()}
    names = list(dict.fromkeys(name for table in tables.values() for name in table))
    found: list[TensorDifference] = []
    for name in names:
        sides = split({rank: table.get(name, (None, None))[0] for rank, table in tables.items()}).sides
        if len(sides) > 1:
            norms = {r: float(t[name][1]) for r, t in tables.items() if name in t and t[name][1] is not None}
            one_each = [side[0] for side in sides]
            largest = _largest(processes, number, name, one_each) if values and len(found) < _VALUES_OF else None
            found.append(TensorDifference(number, name, sides, largest, norms))
    return found, len(names)


def _next_forward(processes: RankView, ranks: Sequence[int], models: Held, modules: bool) -> Held:
    """What the ranks held in one forward of each model that all of them made since, by model.

    A model of which no forward comes is left out, and so are all when the ranks make none.
    """
    turns = {str(m): max(told.forwards for told in held.values()) + _LEAD for m, held in models.items()}
    _ask(processes, ranks, verbs.Trace(turns=turns, modules=modules))
    deadline = time.monotonic() + (TRACE_S if modules else _MOVES_S)
    before, still_since, lead = None, time.monotonic(), _LEAD
    aligned: Held = {}
    while time.monotonic() < deadline and len(aligned) < len(models):
        told = {rank: answer.models for rank, answer in _ask(processes, ranks, verbs.Traces()).items()}
        missed: dict[str, int] = {}
        for model, held in models.items():
            traced = {r: told[r].get(str(model)) for r in held if r in told}
            rows = {r: row for r, row in traced.items() if row is not None and row.done}
            if model in aligned or len(rows) < len(held):
                continue
            reached = {row.turn for row in rows.values()}
            if len(reached) == 1:
                aligned[model] = rows
            else:  # some were past that turn before they were asked for it
                missed[str(model)] = max(reached)
        if missed:
            lead *= 4
            again = {model: turn + lead for model, turn in missed.items()}
            _ask(processes, ranks, verbs.Trace(turns=again, modules=modules))
        if told != before:
            before, still_since = told, time.monotonic()
        elif (aligned or not modules) and time.monotonic() - still_since > _MOVES_S:
            break
        time.sleep(0.05)
    return aligned


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
            found.append(TensorDifference(number, name, first.sides, None, norms, first.kind == "gradients"))
    return Comparison(tuple(found), compared, False, {rank: r.steps for rank, r in recording.ranks.items()})


def injected(recording: Recording) -> tuple[str, ...]:
    """The faults that were injected into a run and triggered, and on which ranks: no wonder that its replicas differ."""
    found = by_value(
        (rank, fault)
        for rank, record in sorted(recording.ranks.items())
        for fault in dict.fromkeys(event.fault for event in record.events(FaultTriggered))
    )
    return tuple(f"injected on {phrases.ranks(ranks)}: {fault[:200]}" for fault, ranks in found.items())


def _ask(processes: RankView, ranks: Sequence[int], request: Request[A]) -> dict[int, A]:
    answers = processes.ask(ranks, request, ANSWER_S)
    silent = [rank for rank in ranks if rank not in answers]
    if silent:
        raise WorldError(
            f"{phrases.ranks(silent)} did not answer.",
            "Check world.snapshot(): an unresponsive rank cannot be compared.",
        )
    for rank, answer in sorted(answers.items()):
        if answer.error:
            raise WorldError(
                f"rank {rank} gave no digests: {shortened(answer.error, 300)}", "world.tensor() reads one tensor."
            )
    return answers


def _largest(processes: RankView, model: int, name: str, ranks: Sequence[int]) -> float | None:
    """The largest absolute difference between the first rank's values and the others'."""
    answers = processes.ask(ranks, verbs.Values(model=model, tensor=name), ANSWER_S)
    values = [array("f", answer.values) for answer in answers.values() if not len(answer.values) % 4]
    if len(values) < 2 or len({len(one) for one in values}) > 1 or not values[0]:
        return None
    return max(max(abs(a - b) for a, b in zip(values[0], other, strict=True)) for other in values[1:])


def _first_module(rows: Mapping[int, Sequence[Sequence[Any]]]) -> tuple[str, list[str]]:
    for calls in zip(*rows.values(), strict=False):
        if len({call[0] for call in calls}) > 1:
            return f"the ranks run different modules: {', '.join(sorted({str(call[0]) for call in calls}))}", []
        if len({call[2] for call in calls}) > 1:
            sides = split({rank: call[2] for rank, call in zip(rows, calls, strict=True)}).sides
            told = " | ".join(map(phrases.ranks, sides))
            note = (
                "with different batches the first module always differs: give all ranks the same batch to find a cause."
            )
            return f"{calls[0][0]} ({calls[0][1]}): {told}", [note]
    return "", ["no module's output differed."]
