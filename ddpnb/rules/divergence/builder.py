"""Builds a Draft about replicas: the ranks, the lines where their samples were taken, and by how much they differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.events.models import LoadFailed, StateLoaded
from ddpnb.recording.facts.digests import Difference, extent
from ddpnb.recording.findings import FindingType
from ddpnb.recording.recording import Recording
from ddpnb.recording.replicas import Sample
from ddpnb.recording.split import Split
from ddpnb.rules.rule import Draft, of_samples, say


def draft_of(
    kind: FindingType,
    summary: str,
    samples: Mapping[int, Sample],
    culprits: Sequence[int],
    evidence: Iterable[str],
    remedy: str,
    tensors: tuple[str, ...] = (),
    sides: tuple[tuple[int, ...], ...] = (),
    **more: Any,
) -> Draft:
    """A Draft that points each rank to the line where its sample was taken, and to when.

    ``sides``: the groups of ranks that differ. They are named where there are no culprits, and if they are equally
    large, the culprits are those that differ from their own past. ``more``: further fields of the Draft.
    """
    if culprits and Split(sides).tied:
        own = "{who} changed there compared with [its|their] own past; {rest} did not."
        evidence = [*evidence, say(own, culprits, rest=phrases.besides(sorted(samples), culprits))]
    more = {"kind": kind, "evidence": tuple(evidence), "tensors": tensors[:20], "sides": sides, **more}
    return of_samples(samples, summary, culprits, remedy, **more)


def either(one: str, tie: str, culprits: Sequence[int], ranks: Iterable[int], **words: Any) -> str:
    """A sentence about the culprits; about all ranks where there are none."""
    return say(one, culprits, **words) if culprits else say(tie, ranks, **words)


def loads(recording: Recording, what: str, samples: Mapping[int, Sample] | None = None) -> dict[int, StateLoaded]:
    """Of the ranks that have loaded a state into a model (or optimizer, scaler), the last such event that was not refused.

    ``samples``: only of these ranks, and before the time of each.
    """
    found: dict[int, StateLoaded] = {}
    for rank in sorted(recording.ranks if samples is None else samples):
        record = recording.ranks[rank]
        refused = {failed.site for failed in record.events(LoadFailed)} - {NO_SITE}
        for load in record.events(StateLoaded):
            early = samples is None or load.began_ns <= samples[rank].at_ns
            if load.what == what and load.site not in refused and early:
                found[rank] = load
    return found


def loaded_alone(recording: Recording, loaders: Collection[int], ranks: Iterable[int]) -> bool:
    """Whether some ranks have loaded a state and the others certainly have not: none of their events is forgotten."""
    others = [rank for rank in ranks if rank not in loaders]
    return bool(loaders and others) and not any(recording.ranks[rank].events_forgotten for rank in others)


def how_far(found: Difference | None) -> list[str]:
    """By how much the first part differs of which the norms are known."""
    told = ((unit, extent(found.samples, unit)) for unit in found.units) if found is not None else ()
    return [f"{unit}: norm {norms}." for unit, norms in told if norms][:1]


def few(tensors: Sequence[str], most: int = 3) -> str:
    """The first of these names, and how many more there are."""
    if len(tensors) > most:
        return f"{', '.join(tensors[:most])} and {len(tensors) - most} more"
    return " and ".join(filter(None, (", ".join(tensors[:-1]), *tensors[-1:])))


def since_steps(before: int, now: int) -> str:
    """Since when ranks differ that agreed after ``before`` optimizer steps and no longer after ``now`` of them."""
    return (
        f"since optimizer step {now}"
        if before + 1 == now
        else f"since one of the optimizer steps {before + 1} to {now}"
    )
