"""Missing calls: others wait in a backward, a forward or a gather that a rank does not take part in."""

from __future__ import annotations

import re
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.facts.departures import jumped
from ddpnb.recording.facts.paths.partings import parting
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stacks import frames_at, in_backward
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.findings import Finding
from ddpnb.rules.divergence.optimizers import STATE_ON_ONE_RANK
from ddpnb.rules.divergence.replicas import replicas
from ddpnb.rules.divergence.synchronisation import FORWARD_BYPASSED, SYNC_SKIPPED
from ddpnb.rules.rule import MISMATCHES, SET_UP, Draft, explained, findings_of, refine, refined, say

_SHARDED = (
    "/torch/distributed/checkpoint/",
    "/torch/distributed/optim/",
    "/torch/distributed/fsdp/",
    "/torch/distributed/tensor/",
)
_SHARDED_CALLS = re.compile(r"state_dict|full_tensor|redistribute|consolidate")
_GATHERED = (
    "[gathers|gather] a sharded state",
    "Gathering a sharded state is a collective: call it on all ranks, and write the file on one rank.",
)
_TOGETHER = (
    "torch.distributed.checkpoint is collective: call it on all ranks, also for a model that each of them holds whole."
)
_WORDS = {
    "state_dict_saver.py": ("[saves|save] a distributed checkpoint", _TOGETHER),
    "state_dict_loader.py": ("[loads|load] a distributed checkpoint", _TOGETHER),
}


@refine(refines=("DDP301", "DDP308"), after=SET_UP, gives=("DDP407", "DDP408"))
def not_synchronised(snap: Snapshot, finding: Finding) -> Draft | None:
    """Others wait in backward for gradients that a rank does not send: bypassed, under no_sync, unused."""
    known = parting(snap.recording, finding.culprits, finding.waiting)
    ranks = snap.ranks.among(finding.waiting or finding.concerned)
    waits = any(in_backward(snap.standings[rank]) for rank in ranks)
    differs = known is not None and known.kind == "operation"
    uneven = finding.code == "DDP308"
    # A rank that left its loop is in other micro-batches from there on.
    if not (waits or differs or uneven) or (uneven and jumped(snap.recording, finding.culprits, finding.waiting)):
        return None
    causes = (one for one in findings_of(snap.recording, replicas) if one.type in (FORWARD_BYPASSED, SYNC_SKIPPED))
    return explained(finding, causes, collective=finding.collective)


@refine(
    refines=(*MISMATCHES, "DDP301"),
    after=(*SET_UP, "DDP407", "DDP408"),
    gives=("DDP605",),
    needs=("stacks",),
)
def state_of_one(snap: Snapshot, finding: Finding) -> Draft | None:
    """A sharded state is gathered, or a distributed checkpoint is written or read, on some ranks only."""
    standings = snap.standings
    calls = {rank: _state_call(standings[rank]) for rank in finding.concerned if rank in standings}
    alone = tuple(sorted(rank for rank, call in calls.items() if call))
    others = phrases.besides(sorted(finding.concerned), alone)
    if not alone or not others:
        return None
    # Fewer ranks that gather did what the others do not; as many may be right, or the others.
    few, tied = len(alone) < len(others), len(alone) == len(others)
    culprits, waiting = ((), ()) if tied else (alone, others) if few else (others, alone)
    sides = tuple(sorted((others, alone))) if tied else ()
    what, remedy = _WORDS.get(calls[alone[0]], _GATHERED)
    order = [*culprits, *phrases.besides((*others, *alone), culprits)]
    return refined(
        finding,
        replace(STATE_ON_ONE_RANK, extra_call=few),
        culprits=culprits,
        waiting=waiting,
        sides=sides,
        evidence=(*phrases.observed(finding), *phrases.undecided(sides)),
        summary=say(
            f"{{who}} {what}{{at}}; {{others}} never {{take}} part.",
            alone,
            at=phrases.at(standings[alone[0]].site),
            others=others,
            take=phrases.verb(others, "takes", "take"),
        ),
        where=tuple(snap.at(order).items()),
        remedy=remedy,
        certainty="likely",
    )


def _state_call(standing: Standing) -> str:
    """The outermost function of torch that ranks call together for their state, or its module for a whole checkpoint; empty: none."""
    for frame in frames_at(standing):
        if not frame.user and any(part in frame.file for part in _SHARDED):
            module = frame.file.rpartition("/")[2]
            if module in _WORDS or _SHARDED_CALLS.search(frame.function):
                return module if module in _WORDS else frame.function
    return ""
