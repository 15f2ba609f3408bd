"""Silent divergence: what first differed between the replicas of a model, when, and what each rank did around it.

Between two steps a replica passes three points: forward, gradients before the optimizer's step, parameters after it.
The last point at which the ranks agree and the first at which they differ enclose the cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import pairwise

from ddpnb.recording.facts.digests import (
    Difference,
    Past,
    by_group,
    by_turn,
    comparable,
    differing,
    first_difference,
    members,
    models_of,
    units_of,
    values_of,
)
from ddpnb.recording.facts.going_on import going_on
from ddpnb.recording.facts.once import once
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.replicas import Model, Sample, TensorSpec
from ddpnb.recording.samples import tensor_name
from ddpnb.recording.split import Split, split

_FEW = 64  # elements
_STEPS = 2  # optimizer steps after which ranks must agree: before the first they were made equal
Turns = Mapping[int, Mapping[int, Sample]]


@once
def replicas_of(recording: Recording) -> tuple[Replicas, ...]:
    """The models of which at least two ranks hold a replica."""
    return tuple(
        Replicas(recording, number, models)
        for number, every in models_of(recording).items()
        for models in by_group(every)
        if len(models) > 1 and comparable(models)
    )


def kept_together(recording: Recording) -> tuple[Replicas, ...]:
    """Those that a wrapper or the script keeps equal."""
    return tuple(own for own in replicas_of(recording) if own.model.wrapper or own.kept_equal is not None)


class Replicas:
    """The ranks' replicas of one model."""

    def __init__(self, recording: Recording, number: int, models: Mapping[int, Model]) -> None:
        self.recording = recording
        self.number = number
        self.models = models
        self.model = models[min(models)]
        self.name = self.model.module
        every = models_of(recording)[number]
        self._only = None if len(every) == len(models) else tuple(sorted(models))  # the others are of other groups
        chosen = self._only or recording.ranks
        self.ranks: Mapping[int, RankRecord] = {rank: recording.ranks[rank] for rank in chosen}

    def turns(self, kind: str) -> Turns:
        """The samples of one kind: turn -> rank -> sample."""
        return by_turn(self.recording, self.number, kind, self._only)

    def of(self, rank: int, *kinds: str) -> list[Sample]:
        """The samples of these kinds of one rank, in their order."""
        return [one for one in self.ranks[rank].samples if one.model == self.number and one.kind in kinds]

    def difference(self, *kinds: str, names: Iterable[str] | None = None) -> Difference | None:
        """The first moment at which samples of these kinds differ."""
        return first_difference(self.recording, self.number, kinds, names, self._only, self.holders)

    @cached_property
    def holders(self) -> frozenset[int]:
        """The ranks that hold a replica, also those that have not wrapped it yet; without a wrapper all ranks do."""
        return members(self.models.values()) or frozenset(range(self.recording.world_size))

    def split(self, values: Mapping[int, object]) -> Split:
        """These ranks by their values; those that hold a replica too and are not among them may hold any."""
        return split(values, len(self.holders) - len(values))

    def of_step(self, kind: str, at: Mapping[int, Sample]) -> Mapping[int, Sample]:
        """The last samples of another kind that the same ranks took in the same optimizer step, if there are such."""
        steps = {rank: sample.step for rank, sample in at.items()}
        turns = reversed([*self.turns(kind).values()])
        return next((ones for ones in turns if {rank: one.step for rank, one in ones.items()} == steps), at)

    @cached_property
    def going_on(self) -> frozenset[int]:
        """The ranks with a replica that may still do what others have done."""
        return going_on(self.recording).intersection(self.models)

    @property
    def all_go_on(self) -> bool:
        """Whether these ranks may still do something together."""
        return len(self.going_on) == len(self.models)

    @cached_property
    def buffers(self) -> list[str]:
        """The parts of buffers that a wrapper synchronises."""
        return self._named(lambda tensor: tensor.buffer and not tensor.ignored)

    @cached_property
    def ignored(self) -> list[str]:
        """The parts of parameters that the wrapper ignores, and that are trained: buffers may differ on purpose."""
        named = self._named(lambda tensor: tensor.ignored)
        steps = [sample.digests for samples in self.turns("gradients").values() for sample in samples.values()]
        return [unit for unit in named if any(unit in held and held[unit].hash for held in steps)]

    def _named(self, chosen: Callable[[TensorSpec], bool]) -> list[str]:
        named = {tensor.name for tensor in self.model.tensors if chosen(tensor)}
        return [unit for unit in units_of(self.recording, self.number) if tensor_name(unit) in named]

    @cached_property
    def drift(self) -> Difference | None:
        """The first moment at which parameters or gradients that should be equal differ."""
        names = self._named(lambda tensor: not (tensor.buffer or tensor.ignored))
        found = self.difference("updated", "forward", "gradients", names=names)
        if found is not None and self._other_pace(found):
            return self.difference("updated", "gradients", names=names)
        return found if found is None or found.kind == "forward" else self._of_steps_left_out(found, names) or found

    def _of_steps_left_out(self, found: Difference, names: list[str]) -> Difference | None:
        """The first forward that differs, if by then ranks have stepped more often than others.

        What was found after a step, or before it, may then be of other forwards on these ranks.
        """
        first = self.difference("forward", names=names)
        if first is None or len({sample.step for sample in first.samples.values()}) == 1:
            return None
        later = (
            samples
            for samples in self.turns("forward").values()
            if samples.keys() >= found.samples.keys()
            and any(samples[rank].at_ns > sample.at_ns for rank, sample in found.samples.items())
        )
        return first if len({sample.step for sample in next(later, {}).values()}) > 1 else None

    def _other_pace(self, found: Difference) -> bool:
        """Whether ranks only took other numbers of forwards to the same optimizer steps, after which they agree."""
        if found.kind != "forward" or len({sample.step for sample in found.samples.values()}) == 1:
            return False
        records = [self.ranks[rank] for rank in found.samples]
        ended = all(record.ending is not None and record.ending.well for record in records)
        if ended and len({record.steps for record in records}) > 1:
            return False  # one left out steps
        taken, steps = (
            [samples for samples in self.turns(kind).values() if len(samples) == len(records)]
            for kind in ("gradients", "updated")
        )
        if len(steps) < _STEPS and self.all_go_on:
            return True  # that is not known yet
        alike = all(len({sample.synced for sample in samples.values()}) == 1 for samples in taken)
        return alike and len(steps) >= _STEPS and not any(differing(samples, found.units) for samples in steps)

    def looks(self, found: Difference, *, later: bool) -> list[dict[int, Sample]]:
        """The checks of such parts on all ranks before or after they differed, in their order."""
        looks: list[dict[int, Sample]] = []
        for kind in ("updated", "forward"):
            for samples in self.turns(kind).values():
                held = {rank: samples[rank] for rank in found.samples if rank in samples}
                beside = [(sample.at_ns, found.samples[rank].at_ns) for rank, sample in held.items()]
                if (
                    len(held) == len(found.samples)
                    and all(at > then if later else at < then for at, then in beside)
                    and any(all(unit in sample.digests for sample in held.values()) for unit in found.units)
                ):
                    looks.append(held)
        return sorted(looks, key=lambda held: max(sample.at_ns for sample in held.values()))

    def last_agreed(self, found: Difference) -> int | None:
        """After how many optimizer steps all these ranks were last seen to hold the same, before they differed."""
        steps = (
            {sample.step for sample in held.values()}
            for held in self.looks(found, later=False)
            if not differing(held, found.units)
        )
        return max((one.pop() for one in steps if len(one) == 1), default=None)

    def agree_again(self, found: Difference) -> int | None:
        """The optimizer step after which all ranks held the same in these parts again, if they do at the last check.

        Code may leave the common values for a moment and come back, as sharpness-aware steps do.
        """
        later = [
            held
            for held in self.looks(found, later=True)
            if all(s.kind == "updated" and all(unit in s.digests for unit in found.units) for s in held.values())
        ]
        if not later or differing(later[-1], found.units):
            return None
        return next(max(s.step for s in held.values()) for held in later if not differing(held, found.units))

    def changed_since(self, found: Difference) -> Past:
        """Ranks whose own parameters changed between two checks without an optimizer step in between.

        Nothing that belongs to training changes parameters between a step and a forward, so these ranks' own code did.
        A rank is known not to have changed only if all parts were checked.
        """
        changed: list[int] = []
        known: list[int] = []
        for rank, sample in sorted(found.samples.items()):
            before = [
                one
                for one in self.of(rank, "updated", "forward")
                if one.at_ns <= sample.at_ns and (one.kind, one.turn) != (sample.kind, sample.turn)
            ]
            if before and before[-1].step == sample.step:
                own = [unit for unit in found.units if unit in sample.digests]
                common = [unit for unit in own if unit in before[-1].digests]
                moved = values_of(before[-1], common) != values_of(sample, common)
                changed += [rank] if moved else []
                known += [rank] if moved or common == own else []
        return Past(tuple(changed), tuple(known))

    def changes_elsewhere(self, found: Difference, rank: int) -> bool:
        """Whether a rank's own code changes these parameters at another time: between two checks without a step."""
        looks = sorted(self.of(rank, "updated", "forward"), key=lambda sample: sample.at_ns)
        return any(
            one.step == other.step and values_of(one, held) != values_of(other, held)
            for one, other in pairwise(looks)
            if other is not found.samples[rank]
            if (held := [unit for unit in found.units if unit in one.digests and unit in other.digests])
        )

    def last_synchronised(self, rank: int, taken: Sample) -> bool:
        """Whether the last forward before these gradients were taken was one after which backward synchronises.

        Of many forwards not all are looked at: where the last one was not, whether any before this step was.
        """
        if not taken.forwards:
            return True  # none was recorded
        forwards = [one for one in self.of(rank, "forward") if one.at_ns < taken.at_ns]
        if not forwards or forwards[-1].forwards not in (None, taken.forwards):
            return taken.synced != 0
        return bool(forwards[-1].sync)

    def may_be_averaged(self) -> bool:
        """Whether nothing was synchronised so far, and the script may make the replicas equal later, as ``averaged_by_itself``."""
        steps = [sample for rank in self.models for sample in self.of(rank, "gradients")]
        return bool(steps) and not any(sample.synced for sample in steps) and self.all_go_on

    def averaged_by_itself(self, found: Difference) -> bool:
        """Whether the wrapper never synchronised, and the script makes the replicas equal: local SGD does now and then.

        They were equal at a later look, or collectives carried as many elements as each of the parameters has.
        """
        steps = [sample for rank in found.samples for sample in self.of(rank, "gradients")]
        if not steps or any(sample.synced for sample in steps):
            return False
        differ = [bool(differing(held, found.units)) for held in self.looks(found, later=True)]
        if True in differ and False in differ[differ.index(True) :]:
            return True
        sizes = {math.prod(tensor.shape) for tensor in self.model.parameters}
        return all(
            sizes.issubset(
                size
                for call in self.ranks[rank].calls
                if call.entered_ns > then.at_ns
                for size in call.signature.elements
            )
            for rank, then in found.samples.items()
        )

    @cached_property
    def kept_equal(self) -> list[str] | None:
        """The states in which all ranks held the same, step by step; None where nothing says that these are replicas.

        Without a wrapper they are if their gradients are averaged, or if they stayed equal over two steps.
        """
        everybody = len(self.ranks)
        # Of few numbers Adam's first steps are alike if the gradients have one sign.
        few = sum(math.prod(tensor.shape) for tensor in self.model.parameters) <= _FEW
        agreed: list[str] = []
        for turn, samples in self.turns("updated").items():
            if len(samples) == everybody:
                if differing(samples) or (few and differing(self.turns("gradients").get(turn, {}))):
                    break
                agreed.append(str(sorted((name, d.hash) for name, d in next(iter(samples.values())).digests.items())))
        averaged = [
            samples
            for samples in self.turns("gradients").values()
            if len(samples) == everybody and not differing(samples)
            if any(digest.hash for digest in next(iter(samples.values())).digests.values())
        ]
        turns = self.turns("backward").values()
        other_losses = any(split({rank: s.loss for rank, s in samples.items()}).differs for samples in turns)
        # Equal gradients after equal losses prove nothing.
        proven = len(set(agreed)) > 1 or (len(averaged) > 1 and other_losses)
        return agreed if proven or self.model.options.get("sharded") else None
