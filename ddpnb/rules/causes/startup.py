"""Start-ups that do not complete: a rank claimed twice, or different backends."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.facts.init_facts import inits
from ddpnb.facts.once import once
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.rules.environment import backends
from ddpnb.rules.hangs.startup import DUPLICATE_RANK


def same_rank_twice(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP103: two processes claim the same rank."""
    starts, double = inits(recording), _claimed_twice(recording)
    if not double:
        return None
    number, ranks = next(iter(sorted(double.items())))
    culprits = tuple(sorted(rank for one, claimants in double.items() for rank in claimants if rank != one))
    waiting = tuple(sorted(set(starts) - set(culprits)))
    claims = sorted({claimed for claimed, claimants in double.items() if set(claimants) - {claimed}})
    return Finding(
        DUPLICATE_RANK,
        f"{len(ranks)} processes claim rank {number}: {phrases.ranks(culprits)} {phrases.verb(culprits, 'calls', 'call')} "
        f"init_process_group with rank={' and '.join(map(str, claims[:4]))}.",
        culprits,
        waiting,
        None,
        tuple((rank, starts[rank].site) for rank in (*culprits, *waiting) if starts[rank].site != NO_SITE),
        tuple(f"Rank {rank} joined as rank {starts[rank].rank}." for rank in sorted(starts)[:8]),
        "Take the rank from the launcher (RANK in the environment) instead of computing it.",
    )


@once
def _claimed_twice(recording: Recording) -> dict[int, list[int]]:
    claimed: dict[int, list[int]] = {}
    for rank, start in inits(recording).items():
        if start.rank is not None:
            claimed.setdefault(start.rank, []).append(rank)
    return {rank: ranks for rank, ranks in claimed.items() if len(ranks) > 1}


def other_backend(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    better = backends.find(recording)
    return None if better is None else replace(better, evidence=(*better.evidence, *phrases.observed(finding)[:2]))
