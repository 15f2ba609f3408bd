"""Replicas without a wrapper: models that the script itself appears to keep equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpnb.facts.digests import by_turn, comparable, differing, first_difference
from ddpnb.facts.places import known
from ddpnb.lint.unwaited import unwaited
from ddpnb.model import phrases
from ddpnb.model.calls import Call
from ddpnb.model.findings import Finding, Hint
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.rules.divergence.between_runs import differ_since
from ddpnb.rules.divergence.builder import finding_of, how_far, since_steps
from ddpnb.rules.divergence.optimizers import scaler_differs
from ddpnb.rules.divergence.parameter_edit import REPLICA_DRIFT, holding
from ddpnb.rules.divergence.settings import hyper_differ
from ddpnb.rules.unwaited_work import WORK_NOT_WAITED


def together(recording: Recording, number: int, models: Mapping[int, Model]) -> bool:
    """Whether these models are replicas of each other: wrapped, or kept equal by the script."""
    model = models[min(models)]
    return comparable(models) and bool(model.wrapper or _kept_equal(recording, number, model) is not None)


def by_hand(recording: Recording, number: int, model: Model) -> Finding | None:
    """A model without a wrapper, if the ranks' are replicas."""
    early = _taken_early(recording, number, model)
    if early is not None:
        return early
    agreed = _kept_equal(recording, number, model)
    if agreed is None:
        return None
    sharded = bool(model.options.get("sharded"))
    hyper = hyper_differ(recording, number, model) or scaler_differs(recording, number)
    found = first_difference(recording, number, kinds=("updated",))
    if hyper is not None or found is None:
        return hyper
    if found.turn == 1 and (since := differ_since(recording, model, found)) is not None:
        return replace(since, certainty="likely")
    turns = by_turn(recording, number, "updated").items()
    before = max((t for t, looked in turns if t < found.turn and looked.keys() >= found.samples.keys()), default=0)
    if sharded:
        evidence = (
            "The rest of the model is sharded; these parameters are not, and their gradients are not synchronised."
        )
    elif agreed:
        evidence = f"After {before} optimizer steps all ranks held the same parameters, but not after " + (
            "the next step." if before + 1 == found.turn else f"step {found.turn}; the steps between were not checked."
        )
    else:
        evidence = "The gradients are averaged in every step, but the parameters were never the same."
    culprits = found.split.culprits
    since = since_steps(before, found.turn) if agreed else f"since optimizer step {found.turn}"
    return finding_of(
        REPLICA_DRIFT,
        holding(culprits, found.samples, model.module, f"{since}: {', '.join(found.tensors[:3])}."),
        found.samples,
        culprits,
        [evidence, *how_far(found)],
        "Start all ranks from the same values (broadcast into the parameters themselves) and average the gradients of "
        "all parameters before every step, or use DistributedDataParallel.",
        tensors=found.tensors,
        sides=found.sides,
        certainty="likely",
    )


def _kept_equal(recording: Recording, number: int, model: Model) -> list[str] | None:
    """The states in which all ranks held the same, step by step; None where nothing says that these are replicas.

    They are if their gradients are averaged, or if they stayed equal over two steps.
    """
    ranks = len(recording.ranks)
    updated = {t: s for t, s in by_turn(recording, number, "updated").items() if len(s) == ranks}
    gradients = [s for s in by_turn(recording, number, "gradients").values() if len(s) == ranks]
    averaged = [
        s for s in gradients if not differing(s) and any(d.hash for d in next(iter(s.values())).digests.values())
    ]
    agreed = []
    for samples in updated.values():
        if differing(samples):
            break
        agreed.append(str(sorted((name, d.hash) for name, d in next(iter(samples.values())).digests.items())))
    proven = len(set(agreed)) > 1 or (len(averaged) > 1 and not _inputs_never_differ(recording))
    return agreed if proven or model.options.get("sharded") else None


def _taken_early(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP316: the optimizer steps while calls that average gradients or parameters are still in flight."""
    shapes = {tensor.shape for tensor in model.parameters}
    for turn, samples in by_turn(recording, number, "gradients").items():
        early = {rank: s for rank, s in samples.items() if s.number("outstanding")}
        if len(early) < 2 or len(early) < len(samples) or not differing(samples):
            continue
        # Other calls, for example of a metric, may be in flight as well.
        calls = {
            rank: [c for c in recording.ranks[rank].calls if _on_its_way(c, one, shapes)] for rank, one in early.items()
        }
        if not any(calls.values()):
            continue
        first = next(made[0] for made in calls.values() if made)
        finding = finding_of(
            WORK_NOT_WAITED,
            f"Optimizer step {turn} runs while calls on tensors with the shapes of its parameters are still in flight: "
            f"{first.op}{phrases.at(first.site)}.",
            samples,
            tuple(sorted(early)),
            [
                f"Rank {rank}: {sample.number('outstanding'):.0f} calls were not waited for."
                for rank, sample in sorted(early.items())[:8]
            ],
            "Wait for all handles (for work in pending: work.wait()) before optimizer.step().",
            certainty="likely",
        )
        return _at_the_call(recording, finding, calls)
    return None


def _at_the_call(recording: Recording, finding: Finding, calls: Mapping[int, Sequence[Call]]) -> Finding:
    """The finding with the lines of the calls as its places, and a hint if they are one line that the source shows no wait() for."""
    places = known((rank, made[0].site) for rank, made in sorted(calls.items()) if made)
    finding = replace(finding, where=(*places, *finding.where))
    sites = {call.site for made in calls.values() for call in made}
    if len(sites) > 1 or not all(calls.values()):
        return finding
    site = sites.pop()
    shown = [one for one in unwaited(recording.sources.get(site.file, "")) if one.line == site.line]
    return replace(finding, hint=Hint(site.file, site.line, shown[0].reason.rstrip("."))) if shown else finding


def _on_its_way(call: Call, sample: Sample, shapes: set[tuple[int, ...]]) -> bool:
    waited = call.state.name in ("COMPLETED", "FAILED") and call.done_ns < sample.at_ns
    return call.entered_ns < sample.at_ns and not waited and bool(shapes.intersection(call.signature.shapes))


def _inputs_never_differ(recording: Recording) -> bool:
    """Whether all ranks had the same losses: equal gradients then prove nothing."""
    losses = [tuple(s.number("loss") for s in r.samples if s.kind == "backward") for r in recording.ranks.values()]
    return len(set(losses)) < 2
