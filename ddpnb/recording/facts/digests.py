"""Values and digests by rank: who holds the same, when that first differed, and who differs from the rank's own past."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ddpnb.recording import phrases
from ddpnb.recording.facts.once import once
from ddpnb.recording.recording import Recording
from ddpnb.recording.replicas import Model, Sample
from ddpnb.recording.samples import tensor_name
from ddpnb.recording.split import Split, by_value, countable, split

# The points that a replica passes between two optimizer steps.
_ORDER = {"updated": 0, "forward": 1, "gradients": 2}


@dataclass(frozen=True, slots=True)
class Past:
    """The ranks that differ from their own past, and those whose past is recorded."""

    changed: tuple[int, ...]
    known: tuple[int, ...]

    @property
    def unchanged(self) -> tuple[int, ...]:
        changed = frozenset(self.changed)
        return tuple(rank for rank in self.known if rank not in changed)

    def blamed(self, split: Split) -> tuple[int, ...]:
        """The culprits of a split; in a tie those that changed, if the past of every rank is recorded."""
        return split.blamed(self.changed, self.known)


def against_past(values: Mapping[int, object], before: Mapping[int, Iterable[object]]) -> Past:
    """Which ranks have a value that is none of those they had before; a rank without earlier values is unknown."""
    earlier = {rank: set(map(countable, before.get(rank, ()))) for rank in values}
    known = tuple(rank for rank in sorted(values) if earlier[rank])
    return Past(tuple(rank for rank in known if countable(values[rank]) not in earlier[rank]), known)


def last_common(turns: Mapping[int, Mapping[int, Sample]], turn: int, ranks: Iterable[int]) -> Mapping[int, Sample]:
    """The samples of the last turn before this one that all these ranks took; none if there is no such turn."""
    wanted = set(ranks)
    return next((turns[n] for n in sorted(turns, reverse=True) if n < turn and wanted <= turns[n].keys()), {})


@dataclass(frozen=True, slots=True)
class Difference:
    """The first moment at which a model's replicas differ.

    ``sides``: ranks that hold the same, the largest side first; ``units`` those parts of tensors that
    differ, in the model's order.
    """

    model: int
    kind: str
    turn: int
    samples: Mapping[int, Sample]
    units: tuple[str, ...]
    sides: tuple[tuple[int, ...], ...]
    absent: int = 0  # how many more ranks hold a replica, and have not reached this moment

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(tensor_name, self.units)))

    @property
    def split(self) -> Split:
        return Split(self.sides, self.absent)


def differing(samples: Mapping[int, Sample], names: Iterable[str] | None = None) -> tuple[str, ...]:
    """The parts of tensors in which these samples of one turn differ, as far as at least two of them hold a part."""
    if len(samples) < 2:
        return ()
    if names is None:
        names = dict.fromkeys(name for sample in samples.values() for name in sample.digests)
    held = [sample.digests for sample in samples.values()]
    return tuple(name for name in names if len({digests[name].hash for digests in held if name in digests}) > 1)


def sides_of(samples: Mapping[int, Sample], units: Iterable[str]) -> tuple[tuple[int, ...], ...]:
    """The ranks in groups that hold the same in these parts: the largest first, then by the lowest rank."""
    chosen = list(units)
    held = {rank: sample.digests for rank, sample in samples.items()}
    return split(
        {rank: tuple(own[name].hash if name in own else None for name in chosen) for rank, own in held.items()}
    ).sides


@once
def by_turn(
    recording: Recording, model: int, kind: str, ranks: tuple[int, ...] | None = None
) -> dict[int, dict[int, Sample]]:
    """The samples of one kind of one model, of all ranks or of these: turn -> rank -> sample."""
    found: dict[int, dict[int, Sample]] = defaultdict(dict)
    for rank in recording.ranks if ranks is None else ranks:
        for sample in recording.ranks[rank].samples:
            if sample.model == model and sample.kind == kind:
                found[sample.turn][rank] = sample
    return dict(sorted(found.items()))


@once
def models_of(recording: Recording) -> dict[int, dict[int, Model]]:
    """Number -> rank -> model."""
    found: dict[int, dict[int, Model]] = defaultdict(dict)
    for rank, record in recording.ranks.items():
        for model in record.models:
            found[model.number][rank] = model
    return dict(sorted(found.items()))


def by_group(models: Mapping[int, Model]) -> list[dict[int, Model]]:
    """The ranks' models of one number, those that are wrapped apart for each group that shares one."""
    found: dict[str, dict[int, Model]] = defaultdict(dict)
    for rank, model in sorted(models.items()):
        found[model.group if model.wrapper else ""][rank] = model
    return list(found.values())


def members(models: Iterable[Model]) -> frozenset[int]:
    """The ranks that share models by their wrappers, also those that have not wrapped them."""
    groups = {model.group: model.ranks for model in models if model.wrapper}  # alike on all its ranks
    return frozenset(rank for ranks in groups.values() for rank in ranks)


def comparable(models: Mapping[int, Model]) -> bool:
    """Whether these are replicas: wrapped alike, on one group, with the same tensors, and at once."""
    return (
        len(
            {
                (m.wrapper, m.group, str(m.options.get("made")), *((t.name, t.shape) for t in m.tensors))
                for m in models.values()
            }
        )
        == 1
    )


@once
def units_of(recording: Recording, number: int) -> list[str]:
    """All parts of tensors that occur in the samples of a model, in the model's order."""
    found: dict[str, None] = {}
    for record in recording.ranks.values():
        for sample in record.samples:
            if sample.model == number:
                found.update(dict.fromkeys(sample.digests))
    return list(found)


def first_difference(
    recording: Recording,
    model: int,
    kinds: Iterable[str] = tuple(_ORDER),
    names: Iterable[str] | None = None,
    ranks: tuple[int, ...] | None = None,
    holders: Collection[int] = (),
) -> Difference | None:
    """The earliest disagreement of the replicas of a model, over these kinds of samples, in the order of training.

    Args:
        recording: what is known.
        model: its number.
        kinds: of samples.
        names: of parts of tensors; all of them if left out.
        ranks: those whose samples are compared; all if left out.
        holders: the ranks that hold a replica: of those without a sample it is not known what they hold.
    """
    chosen = None if names is None else list(names)
    found: list[Difference] = []
    for kind in kinds:
        turns = by_turn(recording, model, kind, ranks).items()
        first = next(((turn, samples, units) for turn, samples in turns if (units := differing(samples, chosen))), None)
        if first is not None:
            turn, samples, units = first
            missing = len(set(holders) - samples.keys())
            found.append(Difference(model, kind, turn, samples, units, sides_of(samples, units), missing))
    return min(
        found, key=lambda one: (min(s.step for s in one.samples.values()), _ORDER.get(one.kind, 0)), default=None
    )


def values_of(sample: Sample, units: Iterable[str]) -> tuple[int, ...]:
    return tuple(sample.digests[unit].hash for unit in units if unit in sample.digests)


def extent(samples: Mapping[int, Sample], unit: str) -> str:
    """By how much a part of a tensor differs, as far as its norms tell: ``3.21 on ranks 0 and 2, 3.4 on rank 1``."""
    held = ((rank, sample.digests.get(unit)) for rank, sample in sorted(samples.items()))
    groups = by_value((rank, f"{one.norm:.7g}") for rank, one in held if one is not None and one.norm is not None)
    if len(groups) < 2:
        return ""
    return ", ".join(f"{norm} on {phrases.ranks(ranks)}" for norm, ranks in list(groups.items())[:4])
