"""Batches of another structure on some ranks, and NaN or infinity that first appears on some: in data, model or backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations

from ddpnb.recording import phrases
from ddpnb.recording.events.models import LossNotFinite, ScalerMade
from ddpnb.recording.facts.digests import differing
from ddpnb.recording.facts.going_on import going_on
from ddpnb.recording.facts.loading import dataset_of, replica_groups, side_by_side, views
from ddpnb.recording.facts.places import moments
from ddpnb.recording.facts.replicas import Replicas, kept_together
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.findings import FindingType
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.replicas import Sample
from ddpnb.rules.rule import FEW, Draft, each, family, of_samples, say

BAD_SAMPLE = FindingType("DDP508", "bad-sample")
NAN_ON_RANK = FindingType("DDP414", "nan-on-rank")

_Turns = Mapping[int, Mapping[int, Sample]]
_ANOMALY = "torch.autograd.set_detect_anomaly(True)"
_TOGETHER = "To skip such a step, skip it on all ranks (all_reduce a flag first)."


@family(BAD_SAMPLE, NAN_ON_RANK)
def bad_samples(snap: Snapshot) -> Iterable[Draft]:
    """By the batches of the loaders, else by the inputs of the models; NaN where it is first seen."""
    found = [draft for group in replica_groups(snap.recording) for draft in _other_kind(snap, group)]
    of_models: list[Draft] = []
    for own in kept_together(snap.recording):
        # Of the moments at which numbers were not finite only the earliest: what comes later may follow from it.
        bad = [*_bad_values(own), *_bad_gradient(own)]
        of_models += [min(bad, key=lambda one: one[0])[1]] if bad else []
        of_models += _other_structure(own)
    known = {draft.kind for draft in found}
    return [*found, *(draft for draft in of_models or _first_losses(snap) if draft.kind not in known)]


# -- structures


def _other_kind(snap: Snapshot, group: tuple[int, ...]) -> Iterator[Draft]:
    """What a rank trains on is never of the kind that the others train on, though it is made by the same class.

    A kind that comes and goes (a field that some samples have) is no finding: another batch may bring it.
    """
    own = views(snap.recording)
    for loops in side_by_side(group, own):
        kinds = {rank: loop.kinds for rank, loop in loops.items()}
        datasets = [dataset_of(own, loops, rank) for rank in group]
        if not all(kinds.values()) or len({one.class_name if one is not None else "" for one in datasets}) > 1:
            continue
        apart = PerRank({rank: "; ".join(one) for rank, one in kinds.items()}).split
        if not apart.differs or set.intersection(*(set(one) for one in kinds.values())):
            continue
        if any(set(kinds[one[0]]) & set(kinds[other[0]]) for one, other in combinations(apart.sides, 2)):
            continue
        odd = apart.culprits
        rest = phrases.besides(group, odd)
        yield Draft(
            say(
                "The batches of {odd} have a different structure than those of {rest}{at}."
                if odd
                else "The batches of {rest} have different structures{at}.",
                odd=odd,
                rest=rest,
                at=phrases.at(loops[group[0]].site),
            ),
            odd,
            "Make the data set and its collate function return the same structure on every rank.",
            loops,
            waiting=rest if odd else (),
            sides=apart.sides,
            evidence=[f"Rank {rank}: {kinds[rank][0]}." for rank in (*odd, *rest)[:FEW]],
            kind=BAD_SAMPLE,
            severity="warning",
            certainty="likely",
            moments=moments(loops),
        )
        return


def _other_structure(own: Replicas) -> Iterator[Draft]:
    """Inputs with a different structure (types, keys, dimensions) on some ranks, in one turn."""
    usual: dict[int, str] = {}
    for turn, samples in own.turns("forward").items():
        kinds = PerRank({rank: sample.inputs for rank, sample in samples.items()})
        # A rank whose inputs are always of their own kind has another kind of data, not a bad sample.
        changed = {rank for rank in kinds if usual.get(rank, "") not in ("", kinds[rank])}
        apart = own.split(kinds)
        odd = sorted(changed.intersection(apart.blamed(changed, filter(usual.get, kinds)))) if apart.differs else ()
        if odd:
            yield of_samples(
                samples,
                say("The batch of forward {turn} has a different structure on {odd}.", turn=turn, odd=odd),
                odd,
                "Make the collate function return the same structure for every batch.",
                evidence=(f"Rank {odd[0]}: {kinds[odd[0]]}, previously {usual[odd[0]]}.",),
                kind=BAD_SAMPLE,
                severity="warning",
                certainty="likely",
            )
            return
        usual |= kinds


# -- numbers that are not finite


def _bad_values(own: Replicas) -> Iterator[tuple[int, Draft]]:
    """When an input and a loss first were not finite on some ranks; the loss that follows from an input is not one."""
    bad_input = _first_bad(own.turns("forward"), lambda sample: sample.inputs_finite == 0.0)
    backwards = _with_unseen(own, own.turns("backward"))
    bad_loss = _first_bad(backwards, lambda sample: not _finite(sample.loss))
    if bad_loss is not None and any(bad_loss[1][rank].inputs_finite == 0.0 for rank in bad_loss[2]):
        bad_input, bad_loss = bad_input or bad_loss, None
    if bad_input is not None:
        turn, samples, culprits = bad_input
        left_out, handled = _left_out(own, turn, samples), _handled(own, samples)
        yield (
            _time(samples, culprits),
            of_samples(
                samples,
                f"The batch of forward {turn} contains NaN or infinity on {phrases.ranks(culprits)} only.",
                culprits,
                "Check samples when they are read (torch.isfinite), and skip a bad one on all ranks: "
                "averaged gradients carry it into every replica.",
                evidence=(
                    f"The inputs of {own.model.wrapper or own.model.module} are finite on the other ranks, and were finite before.",
                    *(["No rank ran backward on it."] if left_out else []),
                    *handled,
                ),
                kind=BAD_SAMPLE,
                severity="note" if handled else "warning" if left_out else None,
            ),
        )
    if bad_loss is not None:
        turn, samples, culprits = bad_loss
        handled = _handled(own, samples)
        yield (
            _time(samples, culprits),
            of_samples(
                samples,
                f"The loss of backward {turn} is {_word(samples[culprits[0]].loss)} on {phrases.ranks(culprits)} only.",
                culprits,
                f"Find the operation with {_ANOMALY} on that rank. {_TOGETHER}",
                evidence=(
                    *each(sorted(samples), lambda rank: f"Rank {rank}: loss {_shown(samples[rank].loss)}."),
                    "The inputs were finite there: it arose in the model or in the loss.",
                    *handled,
                ),
                kind=NAN_ON_RANK,
                severity="note" if handled else None,
            ),
        )


def _first_losses(snap: Snapshot) -> Iterator[Draft]:
    """Losses were no longer finite on some ranks, and the others' only later, of models that are not looked at."""
    found = snap.every(LossNotFinite).of(lambda events: events[0])
    if len(snap.ranks) < 2 or not found or snap.every(ScalerMade):
        return
    first = min(event.backward for event in found.values())
    culprits = tuple(rank for rank, event in found.items() if event.backward == first)
    others = phrases.besides(snap.ranks, culprits)
    if not others or not all(snap.ranks[rank].steps for rank in others):
        return
    steps = min(_steps_by(snap.ranks[rank], found[rank].began_ns) for rank in culprits)
    behind = [rank for rank in others if rank not in found and snap.ranks[rank].steps <= steps]
    unknown = going_on(snap.recording).intersection(behind) or len(snap.ranks) < snap.recording.world_size
    loss = _word(float(found[culprits[0]].loss))
    yield Draft(
        f"Since backward {first} the loss is {loss} on {phrases.ranks(culprits)}, before any other rank.",
        culprits,
        f"Look at the batch and the model of that step with {_ANOMALY} on that rank. {_TOGETHER}",
        found.among(culprits),
        waiting=others,
        evidence=(
            f"On {phrases.ranks(others)} no such loss was recorded by then. Averaged gradients carry NaN and infinity to all ranks.",
            *each(found, lambda rank: f"Rank {rank}: not finite since backward {found[rank].backward}."),
        ),
        kind=NAN_ON_RANK,
        certainty="proven" if len(found) == len(culprits) and not unknown else "likely",
    )


def _steps_by(record: RankRecord, at_ns: int) -> int:
    """How many optimizer steps a rank had made at this moment, as far as that is recorded."""
    later = [mark.steps for mark in record.marks if mark.kind == "step" and mark.at_ns > at_ns]
    return min(later) - 1 if later else record.steps


def _bad_gradient(own: Replicas) -> Iterator[tuple[int, Draft]]:
    """Losses are finite everywhere, but the gradient that came back to the model is not on some ranks."""
    bad = _first_bad(own.turns("gradients"), lambda sample: sample.arrived_finite == 0.0)
    if bad is None:
        yield from _bad_average(own)
        return
    turn, at, culprits = bad
    if any(digest.norm is not None for rank in culprits for digest in at[rank].digests.values()):
        return  # what the optimizer took is finite: that backward pass was left out, by a GradScaler say
    yield (
        _time(at, culprits),
        of_samples(
            own.of_step("backward", at),
            f"The gradient of the loss is NaN or infinite on {phrases.ranks(culprits)} only, before optimizer step {turn}.",
            culprits,
            f"Find the operation with {_ANOMALY} on that rank (sqrt of zero, division, exp). {_TOGETHER}",
            evidence=("The losses are finite, and so are the gradients at the model's output on the other ranks.",),
            kind=NAN_ON_RANK,
        ),
    )


def _bad_average(own: Replicas) -> Iterator[tuple[int, Draft]]:
    """Everything recorded of each rank is finite, but the averaged gradients are not: it arose in a backward pass."""
    had_norm: set[str] = set()  # of others (half precision) it is not known
    for turn, samples in own.turns("gradients").items():
        told = [(name, digest) for one in samples.values() for name, digest in one.digests.items()]
        bad = sorted({name for name, one in told if one.norm is None and one.hash and name in had_norm})
        had_norm.update(name for name, one in told if one.norm is not None)
        if not bad:
            continue
        losses = own.of_step("backward", samples)
        finite = all(one.arrived_finite == 1.0 for one in samples.values()) and all(
            _finite(one.loss) for one in losses.values()
        )
        everywhere = all(any(one.digests[n].norm is None for n in bad if n in one.digests) for one in samples.values())
        if finite and everywhere and len(samples) > 1 and samples[min(samples)].synced != 0.0:
            more = f" and {len(bad) - 4} more" if len(bad) > 4 else ""
            yield (
                _time(samples, samples),
                of_samples(
                    losses,
                    f"The averaged gradients contain NaN or infinity on all ranks since optimizer step {turn}: "
                    f"{', '.join(bad[:4])}{more}.",
                    (),
                    f"{_ANOMALY} names the operation on the rank where it arises (sqrt of zero, division, exp).",
                    evidence=(
                        "The losses and the gradients at the model's output are finite on all ranks: it arose in the backward pass "
                        "of one rank or more, and averaging spread it.",
                    ),
                    kind=NAN_ON_RANK,
                    tensors=tuple(bad[:20]),
                    severity="warning",
                ),
            )
        return


def _handled(own: Replicas, samples: Mapping[int, Sample]) -> list[str]:
    """The evidence that all ranks dealt with it alike: later they hold the same, finite parameters."""
    for turn, later in reversed([*own.turns("forward").items()]):
        held = {rank: later[rank] for rank in samples if rank in later and later[rank].at_ns > samples[rank].at_ns}
        digests = [digest for sample in held.values() for digest in sample.digests.values()]
        if len(held) == len(samples) and digests:
            if differing(held) or any(digest.norm is None for digest in digests):
                return []
            return [f"All ranks dealt with it alike: in forward {turn} they hold the same finite parameters."]
    return []


def _left_out(own: Replicas, turn: int, samples: Mapping[int, Sample]) -> bool:
    """Whether every rank reached the next forward without a backward pass through this one."""
    after = own.turns("forward").get(turn + 1, {})
    backwards = [one for ones in own.turns("backward").values() for one in ones.items()]
    between = any(samples[r].at_ns < one.at_ns < after[r].at_ns for r, one in backwards if r in samples and r in after)
    return bool(backwards) and set(after) == set(samples) and not between


def _first_bad(
    turns: _Turns, bad: Callable[[Sample], bool]
) -> tuple[int, Mapping[int, Sample], tuple[int, ...]] | None:
    """The first turn in which some ranks are bad, if then others are not: (turn, samples, the bad ranks)."""
    for turn, samples in turns.items():
        culprits = tuple(rank for rank in sorted(samples) if bad(samples[rank]))
        if culprits:
            return (turn, samples, culprits) if len(culprits) < len(samples) else None
    return None


def _with_unseen(own: Replicas, turns: _Turns) -> _Turns:
    """With the samples before in the place of those that were not taken: a loss that is not finite always is."""
    before: dict[int, Sample] = {}
    found: dict[int, dict[int, Sample]] = {}
    for turn, samples in turns.items():
        went_on = {rank: one for rank, one in before.items() if own.ranks[rank].forwards > turn}
        found[turn] = {**went_on, **samples}
        before |= samples
    return found


def _time(samples: Mapping[int, Sample], ranks: Iterable[int]) -> int:
    return min(samples[rank].at_ns for rank in ranks)


def _finite(loss: float | None) -> bool:
    return math.isfinite(loss or 0.0)


def _word(loss: float | None) -> str:
    return "NaN" if loss is not None and math.isnan(loss) else "infinite"


def _shown(loss: float | None) -> str:
    return "unknown" if loss is None else f"{loss:.6g}"
