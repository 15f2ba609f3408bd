"""Replicas that already differ when a run begins: ranks held the same when an earlier run ended, or never did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddpnb.facts.digests import Difference, Past, by_turn, differing, values_of
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.rules.divergence.builder import finding_of, how_far, placed
from ddpnb.rules.divergence.parameter_edit import CHANGE_ALIKE, REPLICA_DRIFT, holding


@dataclass(frozen=True, slots=True)
class _End:
    """What all ranks held when an earlier run had ended; ``changed``: the samples of those that it changed."""

    name: str
    changed: Mapping[int, Sample]
    held: Mapping[int, Sample]


def is_of_earlier_run(model: Model) -> bool:
    return "made" in model.options


def differ_since(recording: Recording, model: Model, found: Difference) -> Finding | None:
    """DDP405: the replicas of a model of an earlier run differ when it is used again; None: what was before is not known."""
    ends = _ends(recording, found)
    units = [unit for unit in found.units if all(unit in one.digests for end in ends for one in end.held.values())]
    if not ends or not units:
        return None
    last = max((place for place, end in enumerate(ends) if not differing(end.held, units)), default=-1)
    if last < 0:
        return _never_equal(model, found, ends[0])
    agreed = ends[last]
    after = ends[last + 1] if last + 1 < len(ends) else None
    now = after.changed if after is not None else found.samples
    moved = [rank for rank in now if values_of(now[rank], units) != values_of(agreed.held[rank], units)]
    past = Past(tuple(sorted(moved)), tuple(sorted(found.samples)))
    most = past.changed == tuple(sorted(found.sides[0])) and not found.split.tied
    culprits = past.unchanged if most else past.changed if past.unchanged else found.split.culprits
    name = after.name if after is not None else f"the end of {agreed.name}"
    evidence = [
        f"When {agreed.name} ended, all ranks held the same values.",
        *_who(past, after, found),
        *how_far(found),
    ]
    finding = finding_of(
        REPLICA_DRIFT,
        holding(culprits, found.samples, model.module, f"since {name}: {', '.join(found.tensors[:3])}."),
        found.samples,
        culprits,
        evidence,
        CHANGE_ALIKE,
        tensors=found.tensors,
        sides=() if culprits else found.sides,
        certainty="likely" if most else "proven",
    )
    if after is not None:  # where it was changed, as far as that is known
        places = {rank: after.changed[rank].site for rank in past.changed if rank in culprits}
        finding = placed(finding, known((rank, places.get(rank, site)) for rank, site in finding.where))
    return finding


def _ends(recording: Recording, found: Difference) -> list[_End]:
    """The ends of earlier runs after which it is known what each rank held."""
    held: dict[int, Sample] = {}
    ends: list[_End] = []
    for samples in by_turn(recording, found.model, "earlier").values():
        held |= samples
        if held.keys() >= found.samples.keys():
            name = str(next(iter(samples.values())).facts.get("run") or "an earlier run")
            ends.append(_End(name, samples, {rank: held[rank] for rank in found.samples}))
    return ends


def _who(past: Past, after: _End | None, found: Difference) -> list[str]:
    """Which ranks changed the parameters, where, and whether that was an optimizer step."""
    if not past.changed:
        return []
    tensors = ", ".join(found.tensors[:6])
    others = f"; {phrases.ranks(past.unchanged)} did not" if past.unchanged else ""
    if after is None:
        return [
            f"{phrases.ranks(past.changed, True)} changed {tensors} after it and before this run used the model{others}."
        ]
    steps = {int(after.changed[rank].number("steps") or 0) for rank in past.changed}
    how = "without an optimizer step" if steps == {0} else f"in {' and '.join(map(str, sorted(steps)))} optimizer steps"
    return [f"{phrases.ranks(past.changed, True)} changed {tensors} in {after.name}, {how}{others}."]


def _never_equal(model: Model, found: Difference, first: _End) -> Finding:
    return finding_of(
        REPLICA_DRIFT,
        f"The replicas of {model.module} differ since {first.name} or earlier: {', '.join(found.tensors[:3])}.",
        found.samples,
        found.split.culprits,
        [f"When {first.name} ended, the ranks already held different values.", *how_far(found)],
        CHANGE_ALIKE,
        tensors=found.tensors,
        sides=found.sides,
    )
