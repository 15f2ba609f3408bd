"""Builds a finding about replicas: the ranks, their source lines, and by how much they differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ddpnb.facts.digests import Difference, Split, extent
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.events.models import LoadFailed, StateLoaded
from ddpnb.model.findings import Certainty, Finding, FindingType, Severity
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Sample


def finding_of(
    kind: FindingType,
    summary: str,
    samples: Mapping[int, Sample],
    culprits: tuple[int, ...],
    evidence: Iterable[str],
    remedy: str,
    tensors: tuple[str, ...] = (),
    severity: Severity | None = None,
    sides: tuple[tuple[int, ...], ...] = (),
    certainty: Certainty = "proven",
) -> Finding:
    """A finding that points each rank to the line where its sample was taken, and to when.

    ``sides``: the groups of ranks that differ. They are named where there are no culprits, and if they are equally
    large, the culprits are those that differ from their own past.
    """
    if culprits and Split(sides).tied:
        rest = list(phrases.besides(sorted(samples), culprits))
        evidence = [
            *evidence,
            f"{phrases.ranks(culprits, True)} changed there compared with {phrases.verb(culprits, 'its', 'their')} own "
            f"past; {phrases.ranks(rest)} did not.",
        ]
    sides = () if culprits else sides
    waiting = () if sides else phrases.besides(sorted(samples), culprits)
    order = [*culprits, *phrases.besides(sorted(samples), culprits)]
    places = known((rank, samples[rank].site) for rank in order if rank in samples)
    evidence = (*evidence, *phrases.undecided(sides))
    return Finding(
        kind,
        summary,
        culprits,
        waiting,
        None,
        places,
        evidence,
        remedy,
        severity or kind.severity,
        tensors[:20],
        sides,
        certainty,
        moments=tuple((rank, sample.at_ns) for rank, sample in sorted(samples.items())),
    )


def loads(recording: Recording, what: str) -> dict[int, list[StateLoaded]]:
    """For each rank the events in which a state was loaded into a model (or optimizer, scaler), and not refused."""
    found: dict[int, list[StateLoaded]] = {}
    for rank, record in recording.ranks.items():
        refused = {failed.site for failed in record.events(LoadFailed)} - {NO_SITE}
        found[rank] = [load for load in record.events(StateLoaded) if load.what == what and load.site not in refused]
    return found


def loaded_alone(recording: Recording, loaders: Collection[int], ranks: Collection[int]) -> bool:
    """Whether some ranks have loaded a state and the others certainly have not: none of their events is forgotten."""
    others = [rank for rank in ranks if rank not in loaders]
    return bool(loaders and others) and not any(recording.ranks[rank].events_forgotten for rank in others)


def placed(finding: Finding, where: tuple[tuple[int, Site], ...]) -> Finding:
    return replace(finding, where=where)


def how_far(found: Difference | None) -> list[str]:
    if found is None:
        return []
    for unit in found.units:
        told = extent(found.samples, unit)
        if told:
            return [f"{unit}: norm {told}."]
    return []


def since_steps(before: int, now: int) -> str:
    """Since when ranks differ that agreed after ``before`` optimizer steps and no longer after ``now`` of them."""
    return (
        f"since optimizer step {now}"
        if before + 1 == now
        else f"since one of the optimizer steps {before + 1} to {now}"
    )


def counted(tensors: tuple[str, ...]) -> str:
    return f"{len(tensors)} tensor{'s' * (len(tensors) != 1)}"


def as_number(text: str) -> str:
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text


def number_of(sample: Sample, name: str) -> str:
    """A number of a sample, in words."""
    value = sample.number(name)
    return "unknown" if value is None else f"{value:.6g}"
