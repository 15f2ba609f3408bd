"""Parameters that were changed between a step and the next forward, or loaded on some ranks only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ddpnb.facts.digests import Difference, Past, apart, by_turn, changed_since, changes_elsewhere
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.calls import Site
from ddpnb.model.events.models import CheckpointRead, LoadFailed
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model
from ddpnb.rules.divergence.builder import counted, finding_of, how_far, loaded_alone, loads, placed
from ddpnb.rules.divergence.optimizers import steps_differ

REPLICA_DRIFT = FindingType("DDP405", "replica-drift")
PARTIAL_LOAD = FindingType("DDP601", "partial-load")
CHANGE_ALIKE = (
    "Change parameters identically on all ranks, or before the model is wrapped, or broadcast them afterwards: "
    "for p in model.parameters(): dist.broadcast(p.data, src=0)."
)


def edited(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP405 or DDP601: parameters were changed between a step and the next forward."""
    turns = by_turn(recording, found.model, "forward")
    steps = {rank: sample.step for rank, sample in found.samples.items()}
    if len(set(steps.values())) > 1:  # a rank that has stepped less often
        return steps_differ(recording, model, found, steps)
    past = changed_since(recording, found, found.units)
    changed = past.changed
    whole = len(past.known) == len(found.samples)  # else a rank of which it is not known may have changed them too
    left_out = _left_out(recording, found, past) if whole else ()
    culprits = left_out or (changed if changed and whole and past.unchanged else found.split.culprits)
    if len(changed) == len(found.samples) and apart(found.samples, found.units):
        culprits = changed  # each by its own
    step = min(steps.values())
    loaded = loads(recording, "model")
    # A load before this forward on some ranks only is the reason.
    early = {
        rank: [load for load in loads if load.began_ns <= found.samples[rank].at_ns]
        for rank, loads in loaded.items()
        if rank in found.samples
    }
    loaders = tuple(rank for rank, loads in sorted(early.items()) if loads)
    evidence = [
        f"Before forward {found.turn} (after {step} optimizer steps) "
        f"{counted(found.tensors)} {'differs' if len(found.tensors) == 1 else 'differ'} between ranks: "
        f"{', '.join(found.tensors[:6])}.",
    ]
    if changed:
        others = f"; {phrases.ranks(past.unchanged)} did not" if past.unchanged else ""
        evidence.append(
            f"{phrases.ranks(changed, True)} changed them between two checks, without an optimizer step{others}."
        )
    again = [rank for rank in left_out if changes_elsewhere(recording, found, rank)]
    if again:
        evidence.append(f"At another time {phrases.ranks(again)} {phrases.verb(again, 'does', 'do')} so too.")
    evidence += how_far(found)
    if turns.get(found.turn - 1, {}).keys() >= found.samples.keys():
        evidence.append(f"At forward {found.turn - 1} all ranks held the same values.")
    sites = {rank: loads[-1].site for rank, loads in early.items() if loads}
    read = any(recording.ranks[rank].events(CheckpointRead) for rank in loaders)
    if read and loaded_alone(recording, loaders, found.samples):
        failed = _failed_loads(recording, [rank for rank in found.samples if rank not in loaders])
        if failed:
            return _not_loaded(model, found, sites, failed, evidence)
        return _loaded_by_some(model, found, loaders, sites, evidence)
    since = f"since forward {found.turn}: {', '.join(found.tensors[:3])}{' ...' if len(found.tensors) > 3 else ''}."
    finding = finding_of(
        REPLICA_DRIFT,
        holding(culprits, found.samples, model.module, since),
        found.samples,
        culprits,
        evidence,
        CHANGE_ALIKE,
        tensors=found.tensors,
        sides=() if culprits else found.sides,
        certainty="likely" if left_out or (culprits == changed and found.split.tied) else "proven",
    )
    if loaders and loaders == culprits:  # what they loaded came from their own memory, and this is where
        finding = placed(finding, known((rank, sites[rank]) for rank in culprits))
    return finding


def _left_out(recording: Recording, found: Difference, past: Past) -> tuple[int, ...]:
    """The ranks that left out a change: they make it at other times, or all others, which are the most, made the same one."""
    unchanged = past.unchanged
    if not past.changed or not unchanged:
        return ()
    most = past.changed == tuple(sorted(found.sides[0])) and not found.split.tied
    return unchanged if most or all(changes_elsewhere(recording, found, rank) for rank in unchanged) else ()


def _loaded_by_some(
    model: Model, found: Difference, loaders: tuple[int, ...], sites: Mapping[int, Site], evidence: list[str]
) -> Finding:
    """Those that loaded are named, which changed what they held; where they are the most, those that did not."""
    others = tuple(rank for rank in sorted(found.samples) if rank not in loaders)
    culprits, rest = (others, loaders) if len(loaders) > len(others) else (loaders, others)
    return Finding(
        PARTIAL_LOAD,
        f"Only {phrases.ranks(loaders)} loaded a state dict into {model.module}: the replicas differ since forward "
        f"{found.turn}.",
        culprits,
        rest,
        None,
        known((rank, sites[rank]) for rank in loaders),
        tuple(evidence),
        "Load the checkpoint on all ranks, or on rank 0 before the model is wrapped: DistributedDataParallel "
        "broadcasts parameters from rank 0 once, in its constructor.",
        tensors=found.tensors[:20],
        certainty="likely",
        moments=tuple((rank, found.samples[rank].at_ns) for rank in sorted(found.samples)),
    )


def holding(culprits: tuple[int, ...], ranks: Collection[int], module: str, since: str) -> str:
    """Which ranks differ from the other replicas, or that all differ."""
    if culprits and set(culprits) < set(ranks):
        return (
            f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'holds', 'hold')} parameters of {module} that differ "
            f"from the other replicas {since}"
        )
    return f"{phrases.ranks(ranks, True)} hold different parameters of {module} {since}"


def _failed_loads(recording: Recording, ranks: list[int]) -> dict[int, LoadFailed]:
    """The ranks on which the load failed, each with the last event of it."""
    return {rank: failed[-1] for rank in ranks if (failed := recording.ranks[rank].events(LoadFailed))}


def _not_loaded(
    model: Model, found: Difference, sites: Mapping[int, Site], failed: Mapping[int, LoadFailed], evidence: list[str]
) -> Finding:
    few, others = tuple(sorted(failed)), tuple(rank for rank in sorted(found.samples) if rank not in failed)
    culprits, waiting = (few, others) if len(few) <= len(others) else (others, few)
    return Finding(
        PARTIAL_LOAD,
        f"{phrases.ranks(few, True)} failed to load the checkpoint and continued without it; {phrases.ranks(sorted(sites))} "
        f"loaded it into {model.module}: the replicas differ since forward {found.turn}.",
        culprits,
        waiting,
        None,
        known(
            (
                *((rank, sites[rank]) for rank in culprits if rank in sites),
                *((rank, event.site) for rank, event in sorted(failed.items())),
            )
        ),
        (*(f"Rank {rank}: {event.error}." for rank, event in sorted(failed.items())[:4]), *evidence),
        "Let a failed load end the run, or all_reduce a flag and load on all ranks or on none.",
        tensors=found.tensors[:20],
        certainty="likely" if len(few) >= len(others) else "proven",
    )
