"""Missing calls: others wait in a backward, a forward or a gather that a rank does not take part in."""

from __future__ import annotations

import re
from dataclasses import replace

from ddpnb.facts.paths.partings import parting
from ddpnb.facts.places import where
from ddpnb.facts.stacks import frames_at, in_backward
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.divergence import replicas
from ddpnb.rules.divergence.optimizers import STATE_ON_ONE_RANK
from ddpnb.rules.divergence.synchronisation import FORWARD_BYPASSED, SYNC_SKIPPED
from ddpnb.rules.hangs import forward_on_one_rank
from ddpnb.rules.hangs.forward_on_one_rank import RANK_ZERO_FORWARD
from ddpnb.rules.hangs.uneven_iterations import UNEVEN_ITERATIONS

_DDP = ("/torch/nn/parallel/distributed.py",)
_SHARDED = (
    "/torch/distributed/checkpoint/",
    "/torch/distributed/optim/",
    "/torch/distributed/fsdp/",
    "/torch/distributed/tensor/",
)
_SHARDED_CALLS = re.compile(r"state_dict|full_tensor|redistribute|consolidate")


def not_synchronised(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """Others wait in backward for gradients that a rank does not send: bypassed, under no_sync, unused."""
    known = parting(recording, finding.culprits, finding.waiting)
    if (
        not any(in_backward(standings[r]) for r in finding.waiting or finding.concerned if r in standings)
        and not (known is not None and known.kind == "operation")
        and finding.type != UNEVEN_ITERATIONS
    ):
        return None
    if finding.type == UNEVEN_ITERATIONS and jumped(recording, finding):
        return None  # a rank that left its loop is in other micro-batches from there on
    for better in replicas.find(recording):
        if better.type in (FORWARD_BYPASSED, SYNC_SKIPPED):
            return replace(
                better, evidence=(*better.evidence, *phrases.observed(finding)[:2]), collective=finding.collective
            )
    return None


def lone_forward(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    better = forward_on_one_rank.lone_forward(recording)
    return None if better is None else replace(better, evidence=(*better.evidence, *phrases.observed(finding)[:2]))


def alone_in_model(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP411: the wait is that of a wrapped model's forward or backward, which the others never began."""
    waiting = [r for r in finding.waiting if r in standings and _in_wrapper(standings[r])]
    if not waiting or (len(waiting) > len(finding.culprits) and len(waiting) > 1):
        return None
    turns = {rank: _forwards(recording.ranks[rank]) for rank in recording.ranks}
    # At a line that the others have run too, these ranks only continued for longer. A forward that called no
    # collective (the first, without buffers) has left only its sample.
    others_ran = [recording.ranks[c] for c in finding.culprits if c in recording.ranks]
    been = {step.site for record in others_ran for step in (*record.calls, *record.samples)}
    # A forward is counted once the wrapper has begun it: one that is blocked in its buffers' broadcast is not.
    theirs = max((turns[c] for c in finding.culprits if c in turns), default=0)
    ahead = [
        rank
        for rank in waiting
        if standings[rank].site not in been and turns[rank] + (not in_backward(standings[rank])) > theirs
    ]
    evaluating = [rank for rank in waiting if not turns[rank] or rank in ahead]
    if not evaluating or jumped(recording, finding):
        return None
    lone = tuple(waiting)
    others = tuple(r for r in finding.culprits if r in standings)
    call = finding.collective
    return Finding(
        RANK_ZERO_FORWARD,
        f"{phrases.ranks(lone, True)} {phrases.verb(lone, 'runs', 'run')} the wrapped model alone: its {call.op if call else 'collective'} "
        f"waits for {phrases.ranks(others)}, which {phrases.verb(others, 'is', 'are')} not in it.",
        lone,
        others,
        call,
        where(standings, [*lone, *others]),
        (
            *(f"Rank {rank} is inside the wrapper{phrases.at(standings[rank].site)}." for rank in lone[:4]),
            *phrases.observed(finding),
        ),
        forward_on_one_rank.remedy(call),
        certainty="likely",
    )


def jumped(recording: Recording, finding: Finding) -> bool:
    """Whether the culprits left the way of the others by an exception or a jump."""
    known = parting(recording, finding.culprits, finding.waiting)
    return known is not None and known.jumped(finding.culprits)


def _in_wrapper(standing: Standing) -> bool:
    return any(any(part in frame.file for part in _DDP) for frame in frames_at(standing)) or in_backward(standing)


def _forwards(record: RankRecord) -> int:
    return record.forwards or max((sample.turn for sample in record.samples if sample.kind == "forward"), default=0)


def state_of_one(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP605: a sharded state is gathered on some ranks only."""
    concerned = finding.concerned
    alone = tuple(sorted(r for r in concerned if r in standings and _gathers(standings[r])))
    others = tuple(sorted(r for r in concerned if r not in alone))
    if not alone or not others:
        return None
    # Fewer ranks that gather did what the others do not; as many may be right, or the others.
    few, tied = len(alone) < len(others), len(alone) == len(others)
    culprits, waiting = ((), ()) if tied else (alone, others) if few else (others, alone)
    sides = tuple(sorted((others, alone))) if tied else ()
    return replace(
        finding,
        type=replace(STATE_ON_ONE_RANK, extra_call=few),
        culprits=culprits,
        waiting=waiting,
        sides=sides,
        evidence=(*phrases.observed(finding), *phrases.undecided(sides)),
        summary=f"{phrases.ranks(alone, True)} {phrases.verb(alone, 'gathers', 'gather')} a sharded state"
        f"{phrases.at(standings[alone[0]].site)}; {phrases.ranks(others)} never {phrases.verb(others, 'takes', 'take')} part.",
        where=where(standings, [*culprits, *phrases.besides((*others, *alone), culprits)]),
        remedy="Gathering a sharded state is a collective: call it on all ranks, and write the file on one rank.",
        certainty="likely",
    )


def _gathers(standing: Standing) -> bool:
    frames = frames_at(standing)
    return any(
        not frame.user and any(part in frame.file for part in _SHARDED) and _SHARDED_CALLS.search(frame.function)
        for frame in frames
    )
