"""NaN and infinity that first appear on some ranks: in their data, in the model, in a backward pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ddpnb.facts.digests import by_turn, differing, of_step
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.events.models import LossNotFinite, ScalerMade
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.rules.data.structure import BAD_SAMPLE
from ddpnb.rules.divergence.builder import finding_of, number_of

NAN_ON_RANK = FindingType("DDP414", "nan-on-rank")


def not_finite(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP508 or DDP414: NaN or infinity that first appears on some ranks, in their data or in the model.

    Only the earliest is reported: what comes later may follow from it.
    """
    found = [*_bad_values(recording, number, model), _bad_gradient(recording, number)]
    return min((one for one in found if one is not None), key=lambda one: one[0], default=(0, None))[1]


def _bad_values(recording: Recording, number: int, model: Model) -> list[tuple[int, Finding]]:
    """When an input and a loss first were not finite on some ranks, and the findings; the loss that follows from an input is not one."""
    bad_input = _first_bad(by_turn(recording, number, "forward"), lambda s: s.number("inputs_finite") == 0.0)
    backwards = _with_unseen(recording, by_turn(recording, number, "backward"))
    bad_loss = _first_bad(backwards, lambda s: not math.isfinite(s.number("loss") or 0.0))
    if bad_loss is not None and any(bad_loss[1][rank].number("inputs_finite") == 0.0 for rank in bad_loss[2]):
        bad_input, bad_loss = bad_input or bad_loss, None
    found: list[tuple[int, Finding]] = []
    if bad_input is not None:
        turn, samples, culprits = bad_input
        left_out = _left_out(recording, number, turn, samples)
        evidence = [
            f"The inputs of {model.wrapper or model.module} are finite on the other ranks, and were finite before."
        ]
        handled = _handled(recording, number, samples)
        finding = finding_of(
            BAD_SAMPLE,
            f"The batch of forward {turn} contains NaN or infinity on {phrases.ranks(culprits)} only.",
            samples,
            culprits,
            [*evidence, *(["No rank ran backward on it."] if left_out else []), *handled],
            "Check samples when they are read (torch.isfinite), and skip a bad one on all ranks: "
            "averaged gradients carry it into every replica.",
            severity="note" if handled else "warning" if left_out else "error",
        )
        found.append((_time(samples, culprits), finding))
    if bad_loss is not None:
        turn, samples, culprits = bad_loss
        handled = _handled(recording, number, samples)
        finding = finding_of(
            NAN_ON_RANK,
            f"The loss of backward {turn} is {_word(samples[culprits[0]].number('loss'))} on {phrases.ranks(culprits)} only.",
            samples,
            culprits,
            [f"Rank {rank}: loss {number_of(sample, 'loss')}." for rank, sample in sorted(samples.items())[:8]]
            + ["The inputs were finite there: it arose in the model or in the loss.", *handled],
            "Find the operation with torch.autograd.set_detect_anomaly(True) on that rank. To skip such a step, "
            "skip it on all ranks (all_reduce a flag first).",
            severity="note" if handled else None,
        )
        found.append((_time(samples, culprits), finding))
    return found


def _time(samples: Mapping[int, Sample], ranks: Iterable[int]) -> int:
    return min(samples[rank].at_ns for rank in ranks)


def first_losses(recording: Recording) -> Finding | None:
    """DDP414: losses were no longer finite on some ranks, and the others' only later, of models that are not looked at."""
    found = {rank: events[0] for rank, one in recording.ranks.items() if (events := one.events(LossNotFinite))}
    if len(recording.ranks) < 2 or not found or any(one.events(ScalerMade) for one in recording.ranks.values()):
        return None
    first = min(event.backward for event in found.values())
    culprits = tuple(rank for rank, event in sorted(found.items()) if event.backward == first)
    others = phrases.besides(sorted(recording.ranks), culprits)
    if not others or not all(recording.ranks[rank].steps for rank in others):
        return None
    return Finding(
        NAN_ON_RANK,
        f"Since backward {first} the loss is {_word(float(found[culprits[0]].loss))} on {phrases.ranks(culprits)}, before any other rank.",
        culprits,
        others,
        where=known((rank, found[rank].site) for rank in culprits),
        evidence=(
            f"On {phrases.ranks(others)} no such loss was recorded by then. Averaged gradients carry NaN and infinity to all ranks.",
            *(f"Rank {rank}: not finite since backward {event.backward}." for rank, event in sorted(found.items())[:8]),
        ),
        remedy="Look at the batch and the model of that step with torch.autograd.set_detect_anomaly(True) on that rank. To skip "
        "such a step, skip it on all ranks (all_reduce a flag first).",
        certainty="proven" if len(found) == len(culprits) else "likely",
    )


def _bad_gradient(recording: Recording, number: int) -> tuple[int, Finding] | None:
    """DDP414: losses are finite everywhere, but the gradient that came back to the model is not on some ranks."""
    bad = _first_bad(by_turn(recording, number, "gradients"), lambda s: s.number("arrived_finite") == 0.0)
    if bad is None:
        return _bad_average(recording, number)
    turn, at, culprits = bad
    if any(digest.norm is not None for rank in culprits for digest in at[rank].digests.values()):
        return None  # what the optimizer took is finite: that backward pass was left out, by a GradScaler say
    samples = of_step(recording, number, "backward", at)
    finding = finding_of(
        NAN_ON_RANK,
        f"The gradient of the loss is NaN or infinite on {phrases.ranks(culprits)} only, before optimizer step {turn}.",
        samples,
        culprits,
        ["The losses are finite, and so are the gradients at the model's output on the other ranks."],
        "Find the operation with torch.autograd.set_detect_anomaly(True) on that rank (sqrt of zero, division, "
        "exp). To skip such a step, skip it on all ranks (all_reduce a flag first).",
    )
    return _time(at, culprits), finding


def _bad_average(recording: Recording, number: int) -> tuple[int, Finding] | None:
    """DDP414: everything recorded of each rank is finite, but the averaged gradients are not: it arose in a backward pass."""
    had_norm: set[str] = set()  # of others (half precision) it is not known
    for turn, samples in by_turn(recording, number, "gradients").items():
        told = [(name, digest) for one in samples.values() for name, digest in one.digests.items()]
        bad = sorted({name for name, one in told if one.norm is None and one.hash and name in had_norm})
        had_norm.update(name for name, one in told if one.norm is not None)
        if not bad:
            continue
        losses = of_step(recording, number, "backward", samples)
        finite = all(s.number("arrived_finite") == 1.0 for s in samples.values()) and all(
            math.isfinite(s.number("loss") or 0.0) for s in losses.values()
        )
        everywhere = all(any(one.digests[n].norm is None for n in bad if n in one.digests) for one in samples.values())
        if not finite or not everywhere or len(samples) < 2 or samples[min(samples)].number("synced") == 0.0:
            return None
        finding = finding_of(
            NAN_ON_RANK,
            f"The averaged gradients contain NaN or infinity on all ranks since optimizer step {turn}: "
            f"{', '.join(bad[:4])}{f' and {len(bad) - 4} more' if len(bad) > 4 else ''}.",
            losses,
            (),
            [
                "The losses and the gradients at the model's output are finite on all ranks: it arose in the backward pass "
                "of one rank or more, and averaging spread it.",
            ],
            "torch.autograd.set_detect_anomaly(True) names the operation on the rank where it arises (sqrt of "
            "zero, division, exp).",
            tensors=tuple(bad[:20]),
            severity="warning",
        )
        return _time(samples, samples), finding
    return None


def _handled(recording: Recording, number: int, samples: Mapping[int, Sample]) -> list[str]:
    """The evidence that all ranks dealt with it alike: later they hold the same, finite parameters."""
    for turn, later in reversed(by_turn(recording, number, "forward").items()):
        held = {rank: later[rank] for rank in samples if rank in later and later[rank].at_ns > samples[rank].at_ns}
        digests = [digest for sample in held.values() for digest in sample.digests.values()]
        if len(held) == len(samples) and digests:
            alike = not differing(held) and all(digest.norm is not None for digest in digests)
            return (
                [f"All ranks dealt with it alike: in forward {turn} they hold the same finite parameters."]
                if alike
                else []
            )
    return []


def _left_out(recording: Recording, number: int, turn: int, samples: Mapping[int, Sample]) -> bool:
    """Whether every rank reached the next forward without a backward pass through this one."""
    after = by_turn(recording, number, "forward").get(turn + 1, {})
    backwards = [one for ones in by_turn(recording, number, "backward").values() for one in ones.items()]
    between = any(samples[r].at_ns < one.at_ns < after[r].at_ns for r, one in backwards if r in samples and r in after)
    return bool(backwards) and set(after) == set(samples) and not between


def _first_bad(turns: Mapping[int, dict[int, Sample]], bad):  # noqa: ANN001, ANN202
    """The first turn in which some ranks are bad, if then others are not: (turn, samples, the bad ranks)."""
    for turn, samples in turns.items():
        culprits = tuple(rank for rank in sorted(samples) if bad(samples[rank]))
        if culprits:
            return (turn, samples, culprits) if len(culprits) < len(samples) else None
    return None


def _with_unseen(recording: Recording, turns: dict[int, dict[int, Sample]]) -> dict[int, dict[int, Sample]]:
    """With the samples before in the place of those that were not taken: a loss that is not finite always is."""
    before: dict[int, Sample] = {}
    found: dict[int, dict[int, Sample]] = {}
    for turn, samples in turns.items():
        went_on = {rank for rank in before if recording.ranks[rank].forwards > turn}
        found[turn] = {**{rank: before[rank] for rank in went_on}, **samples}
        before |= samples
    return found


def _word(value: float | None) -> str:
    return "NaN" if value is not None and math.isnan(value) else "infinite"
