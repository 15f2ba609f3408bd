"""Replicas without a wrapper: models that the script itself keeps equal, or that nothing does."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.calls import Call
from ddpnb.recording.events.models import OptimizerSeen
from ddpnb.recording.events.runs import SeedSet
from ddpnb.recording.events.startup import InitProcessGroup
from ddpnb.recording.facts.digests import Difference, differing
from ddpnb.recording.facts.replicas import Replicas, replicas_of
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import Hint
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.replicas import Model, Sample
from ddpnb.recording.source.unwaited import unwaited
from ddpnb.rules.divergence.builder import draft_of, few, how_far, since_steps
from ddpnb.rules.divergence.optimizers import SCALING_DIFFERS, scales_differ, settings_differ
from ddpnb.rules.divergence.parameter_edit import MIXED, SETUP, drifted, since_earlier_run
from ddpnb.rules.rule import FAILURE, FEW, Draft, each, rule, title
from ddpnb.rules.unwaited_work import WORK_NOT_WAITED

# What may differ of replicas: these are none, or that is the matter.
_OF_REPLICAS = ("DDP405", "DDP406", "DDP407", "DDP408", "DDP409", "DDP410", "DDP415", "DDP601", "DDP605")
_STEPS = 2  # optimizer steps from which on it is training
_CLIPPED = 4  # gradients with one norm, which is no coincidence
_ALIKE = 1e-3  # of a norm
_METRIC = 256  # elements: calls on so few, compared with the model, carry a loss or a count
_SHARE = 4
_FEW = 16  # elements of a vector, such as a bias, that a metric may have too


def by_hand(own: Replicas) -> Draft | None:
    """A model without a wrapper, if the ranks' are replicas."""
    early = _taken_early(own)
    if early is not None or own.kept_equal is None:
        return early
    other = settings_differ(own) or scales_differ(own) or _clipped_alone(own)
    found = own.difference("updated")
    if other is not None or found is None:
        return other
    if found.turn == 1 and (since := since_earlier_run(own, found)) is not None:
        return replace(since, certainty="likely")
    turns = own.turns("updated").items()
    before = max((t for t, looked in turns if t < found.turn and looked.keys() >= found.samples.keys()), default=0)
    if own.model.options.get("sharded"):
        told = "The rest of the model is sharded; these parameters are not, and their gradients are not synchronised."
    elif own.kept_equal:
        told = f"After {before} optimizer steps all ranks held the same parameters, but not after " + (
            "the next step." if before + 1 == found.turn else f"step {found.turn}; the steps between were not checked."
        )
    else:
        told = "The gradients are averaged in every step, but the parameters were never the same."
    seeds = {} if own.kept_equal or own.model.options.get("sharded") else _seeds(own, found)
    return drifted(
        own,
        found,
        found.split.culprits,
        since_steps(before, found.turn) if own.kept_equal else f"since optimizer step {found.turn}",
        [
            told,
            *each(
                seeds,
                lambda rank: f"Rank {rank} called torch.manual_seed({seeds[rank].seed}){phrases.at(seeds[rank].site)}.",
            ),
            *how_far(found),
        ],
        "Start all ranks from the same values (broadcast into the parameters themselves) and average the gradients of "
        "all parameters before every step, or use DistributedDataParallel.",
        sides=found.sides,
        certainty="likely",
        first=tuple((rank, seed.site) for rank, seed in seeds.items()),
    )


def _seeds(own: Replicas, found: Difference) -> dict[int, SeedSet]:
    """The last seed that each rank set before its replica was looked at first, if they differ: parameters are drawn with it."""
    first = {rank: min(one.at_ns for one in own.ranks[rank].samples) for rank in found.samples}
    last = {
        rank: seeds[-1]
        for rank in sorted(first)
        if (seeds := [one for one in own.ranks[rank].events(SeedSet) if one.began_ns <= first[rank]])
    }
    return last if last.keys() == first.keys() and len({one.seed for one in last.values()}) > 1 else {}


def _clipped_alone(own: Replicas) -> Draft | None:
    """DDP409: before gradients are averaged, each rank scales its own down to one norm, and not by a function of torch."""
    told = [
        {rank: (sample.local or 0.0, sample.sent or 0.0) for rank, sample in samples.items()}
        for samples in own.turns("sent").values()
    ]
    scaled = [{rank: sent for rank, (local, sent) in norms.items() if sent < local * (1 - _ALIKE)} for norms in told]
    down = [sent for norms in scaled for sent in norms.values()]
    if own.turns("clip") or len(down) < _CLIPPED or max(down) > min(down) * (1 + _ALIKE):
        return None
    kept = [
        local
        for norms, less in zip(told, scaled, strict=True)
        for rank, (local, _) in norms.items()
        if rank not in less
    ]
    samples = next(
        (own.turns("sent")[turn] for turn, less in zip(own.turns("sent"), scaled, strict=True) if len(less) > 1), None
    )
    if samples is None or max(kept, default=0.0) > max(down) * (1 + _ALIKE):
        return None
    return draft_of(
        SCALING_DIFFERS,
        "Every rank scales its gradients by its own norm before they are averaged: they are not synchronised at that point.",
        samples,
        tuple(sorted(samples)),
        [
            f"Rank {rank}: norm {one.local or 0:.6g} after backward, {one.sent or 0:.6g} at the first call after it."
            for rank, one in sorted(samples.items())[:FEW]
        ],
        "Average the gradients first, then clip them: the norm is then the same on all ranks.",
        certainty="likely",
    )


def _taken_early(own: Replicas) -> Draft | None:
    """DDP316: the optimizer steps while calls that average gradients or parameters are still in flight."""
    shapes = {tensor.shape for tensor in own.model.parameters}
    for turn, samples in own.turns("gradients").items():
        early = {rank: count for rank, s in sorted(samples.items()) if (count := s.outstanding)}
        if len(early) < 2 or len(early) < len(samples) or not differing(samples):
            continue
        # Other calls, for example of a metric, may be in flight as well.
        calls = {rank: [c for c in own.ranks[rank].calls if _on_its_way(c, samples[rank], shapes)] for rank in early}
        made = {rank: ones[0] for rank, ones in calls.items() if ones}
        if not made:
            continue
        first = made[min(made)]
        sites = {call.site for ones in calls.values() for call in ones}
        alone = sites.pop() if len(sites) == 1 and len(made) == len(calls) else None
        shown = (
            [one for one in unwaited(own.recording.sources.get(alone.file, "")) if one.line == alone.line]
            if alone
            else []
        )
        return draft_of(
            WORK_NOT_WAITED,
            f"Optimizer step {turn} runs while calls on tensors with the shapes of its parameters are still in flight: "
            f"{first.op}{phrases.at(first.site)}.",
            samples,
            tuple(early),
            [f"Rank {rank}: {count:.0f} calls were not waited for." for rank, count in list(early.items())[:FEW]],
            "Wait for all handles (for work in pending: work.wait()) before optimizer.step().",
            certainty="likely",
            at=made,
            also=tuple((rank, sample.site) for rank, sample in sorted(samples.items())),
            hint=Hint(alone.file, alone.line, shown[0].reason.rstrip(".")) if alone and shown else None,
        )
    return None


def _on_its_way(call: Call, sample: Sample, shapes: set[tuple[int, ...]]) -> bool:
    waited = call.state.name in ("COMPLETED", "FAILED") and call.done_ns < sample.at_ns
    return call.entered_ns < sample.at_ns and not waited and bool(shapes.intersection(call.signature.shapes))


@rule("DDP417", "not-synchronised", severity="warning", after=(FAILURE, *MIXED, *SETUP, *_OF_REPLICAS))
def not_synchronised(snap: Snapshot) -> Iterable[Draft]:
    """Each rank trains a model of its own, or parameters beside a model that is synchronised."""
    every = replicas_of(snap.recording)
    shared = next((own for own in every if own.model.wrapper or own.kept_equal), None)
    if shared is not None:
        drafts = (_beside(own, shared) for own in every)
    else:
        drafts = (_alone(snap, own) for own in every[:1] if _trained_alone(own))
    return [draft for draft in drafts if draft is not None][:1]


def _alone(snap: Snapshot, own: Replicas) -> Draft | None:
    """A model of each rank's own, alike in shape and settings, and nothing was synchronised."""
    found = own.difference("updated")
    common = [samples for samples in own.turns("updated").values() if samples.keys() == own.ranks.keys()]
    if found is None or not common or not differing(common[-1]):
        return None  # equal, or equal again
    if own.kept_equal is not None or settings_differ(own) is not None:
        return None
    since = {rank: _since_first_step(record, own.number) for rank, record in snap.ranks.items()}
    if any(_carries(call, own.model) for calls in since.values() for call in calls):
        return None
    return Draft(
        "Each rank trains its own model: no collective carried gradients or parameters.",
        tuple(snap.ranks),
        "Wrap the model: DistributedDataParallel(model), fabric.setup(model, optimizer) with Lightning Fabric, or "
        "accelerator.prepare(model, optimizer). If the ranks are meant to train independently, nothing is wrong.",
        common[-1],
        evidence=(
            *each(
                snap.ranks,
                lambda rank: (
                    f"Rank {rank}: {snap.ranks[rank].steps} optimizer steps of {own.name}, {_counted(since[rank])} since the first."
                ),
            ),
            f"After optimizer step {found.turn} the ranks held different values: {few(found.tensors)}.",
            "No rank wrapped a model with DistributedDataParallel or FSDP.",
        ),
        tensors=found.tensors[:20],
        certainty="likely",
    )


def _beside(own: Replicas, shared: Replicas) -> Draft | None:
    """Parameters of which all ranks held the same before their optimizer's first step, and soon never again."""
    ranks, first = own.ranks.keys(), min(own.ranks)
    start = own.turns("start").get(1, {})
    steps, others = (
        [samples for samples in one.turns("updated").values() if samples.keys() == ranks] for one in (own, shared)
    )
    found = own.difference("updated")
    if own is shared or own.kept_equal is not None or found is None or start.keys() != ranks or not others:
        return None
    units = [unit for unit in found.units if all(unit in sample.digests for sample in start.values())]
    since = [samples for samples in steps if units and min(s.turn for s in samples.values()) >= found.turn]
    again = any(not differing(samples, units) for samples in since)
    if len(since) < _STEPS or again or differing(start, units) or settings_differ(own) is not None:
        return None
    lasted, training = (
        looks[-1][first].at_ns - began[first].at_ns for looks, began in ((steps, start), (others, others[0]))
    )
    if 2 * lasted < training:  # as an input that is changed to mislead the model: each rank has its own
        return None
    tensors = found.tensors
    one, wrapper = len(tensors) == 1, shared.model.wrapper
    return Draft(
        title(
            *(
                f"Each rank trains its own {which}, which {'is' if one else 'are'} no part of the model that "
                f"{f'{wrapper} wraps' if wrapper else 'the ranks keep equal'}."
                for which in (few(tensors), few(tensors, 1), "parameters")
            )
        ),
        tuple(sorted(found.samples)),
        "Make them parameters of the module, before it is wrapped and the optimizer is made. Or average their gradients "
        "before each step: dist.all_reduce(p.grad), then p.grad /= dist.get_world_size(). If each rank is meant to train "
        "its own, nothing is wrong.",
        found.samples,
        evidence=(
            "Before the first step all ranks held the same values.",
            *how_far(found),
            f"They differ since step {found.turn} of {own.name}, in all {len(since)} checks since then.",
        ),
        tensors=tensors[:20],
        certainty="likely",
    )


def _trained_alone(own: Replicas) -> bool:
    """Whether no model is wrapped or sharded, and all ranks trained this one in one group, with nothing forgotten."""
    world = own.recording.world_size
    if not len(own.models) == len(own.ranks) == world > 1:
        return False
    for record in own.ranks.values():
        joined = record.events(InitProcessGroup, state="done")
        if not joined or (joined[-1].size or joined[-1].world_size) != world or record.steps < _STEPS:
            return False
        if record.forgotten or record.detached or any(m.wrapper or m.options.get("sharded") for m in record.models):
            return False
    return True


def _since_first_step(record: RankRecord, number: int) -> list[Call]:
    """The calls of a rank since its first optimizer step; all of them where that is not known."""
    begin = min((event.began_ns for event in record.events(OptimizerSeen) if event.model == number), default=0)
    return [call for call in record.calls if call.entered_ns > begin]


def _carries(call: Call, model: Model) -> bool:
    """Whether a call may carry gradients, parameters or activations: not a loss, a count or an object."""
    if call.is_p2p or call.op.startswith("all_to_all"):
        return True
    shapes = [tensor.shape for tensor in model.parameters]
    single = {math.prod(shape) for shape in shapes if len(shape) > 1 or math.prod(shape) > _FEW}
    floats = any(dtype.startswith(("float", "bfloat", "complex")) for dtype in call.signature.dtypes)
    enough = sum(call.signature.elements) >= min(_METRIC, sum(map(math.prod, shapes)) / _SHARE)
    return floats and (enough or not single.isdisjoint(call.signature.elements))


def _counted(calls: list[Call]) -> str:
    return f"{len(calls) or 'no'} collective{'s' * (len(calls) != 1)}" + (
        f" (the last: {phrases.in_call(calls[-1])})" if calls else ""
    )
