"""Missing calls: others wait in a backward, a forward or a gather that a rank does not take part in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ddpnb.facts.departures import jumped
from ddpnb.facts.paths.partings import parting
from ddpnb.facts.snapshot import Snapshot
from ddpnb.facts.stacks import frames_at, in_backward
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.rules.divergence.optimizers import STATE_ON_ONE_RANK
from ddpnb.rules.divergence.replicas import replicas
from ddpnb.rules.divergence.synchronisation import FORWARD_BYPASSED, SYNC_SKIPPED
from ddpnb.rules.rule import Draft, explained, family, findings_of, refined

_SHARDED = (
    "/torch/distributed/checkpoint/",
    "/torch/distributed/optim/",
    "/torch/distributed/fsdp/",
    "/torch/distributed/tensor/",
)
_SHARDED_CALLS = re.compile(r"state_dict|full_tensor|redistribute|consolidate")


_MISMATCHES = ("DDP302", "DDP303", "DDP304", "DDP305")
_CAUSES_OF_CALLS = ("DDP202", "DDP310", "DDP403", "DDP404", "DDP412", "DDP416")


@family(after=_CAUSES_OF_CALLS, refines=("DDP301", "DDP308"), failure=True, gives=("DDP407", "DDP408"))
def not_synchronised(snap: Snapshot) -> Iterable[Draft]:
    """Others wait in backward for gradients that a rank does not send: bypassed, under no_sync, unused."""
    for finding in snap.found("DDP301", "DDP308"):
        known = parting(snap.recording, finding.culprits, finding.waiting)
        ranks = snap.ranks.among(finding.waiting or finding.concerned)
        waits = any(in_backward(snap.standings[rank]) for rank in ranks)
        differs = known is not None and known.kind == "operation"
        uneven = finding.code == "DDP308"
        # A rank that left its loop is in other micro-batches from there on.
        if not (waits or differs or uneven) or (uneven and jumped(snap.recording, finding.culprits, finding.waiting)):
            continue
        for better in findings_of(snap.recording, replicas):
            if better.type in (FORWARD_BYPASSED, SYNC_SKIPPED):
                yield explained(finding, better, collective=finding.collective)
                break


@family(
    after=(*_CAUSES_OF_CALLS, "DDP407", "DDP408"),
    refines=(*_MISMATCHES, "DDP301"),
    failure=True,
    gives=("DDP605",),
    needs=("stacks",),
)
def state_of_one(snap: Snapshot) -> Iterable[Draft]:
    """A sharded state is gathered on some ranks only."""
    standings = snap.standings
    for finding in snap.found(*_MISMATCHES, "DDP301"):
        alone = tuple(sorted(rank for rank in finding.concerned if rank in standings and _gathers(standings[rank])))
        others = phrases.besides(sorted(finding.concerned), alone)
        if not alone or not others:
            continue
        # Fewer ranks that gather did what the others do not; as many may be right, or the others.
        few, tied = len(alone) < len(others), len(alone) == len(others)
        culprits, waiting = ((), ()) if tied else (alone, others) if few else (others, alone)
        sides = tuple(sorted((others, alone))) if tied else ()
        order = [*culprits, *phrases.besides((*others, *alone), culprits)]
        yield refined(
            finding,
            replace(STATE_ON_ONE_RANK, extra_call=few),
            culprits=culprits,
            waiting=waiting,
            sides=sides,
            evidence=(*phrases.observed(finding), *phrases.undecided(sides)),
            summary=f"{phrases.ranks(alone, True)} {phrases.verb(alone, 'gathers', 'gather')} a sharded state"
            f"{phrases.at(standings[alone[0]].site)}; {phrases.ranks(others)} never {phrases.verb(others, 'takes', 'take')} part.",
            where=tuple(snap.at(order).items()),
            remedy="Gathering a sharded state is a collective: call it on all ranks, and write the file on one rank.",
            certainty="likely",
        )


def _gathers(standing: Standing) -> bool:
    frames = frames_at(standing)
    return any(
        not frame.user and any(part in frame.file for part in _SHARDED) and _SHARDED_CALLS.search(frame.function)
        for frame in frames
    )
