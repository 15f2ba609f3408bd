"""Ranks that are blocked outside any collective, and can never continue: what they wait for cannot come any more.

A proof needs all that could end the wait. For a file lock these are the processes that hold it; for a worker of the rank, the
worker itself. Of locks and queues within a process nothing is proven: any thread may still use them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.facts.children import never_answer
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.facts.waits import stuck, waits
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording

_PROVEN = float("inf")  # as patience
#: threads of these never run the user's code, and hold nothing of the user's
_SERVICE = re.compile(
    r"[\\/](?:ddpnb|tqdm|ipykernel|ipyparallel|zmq|tornado|torch[\\/](?:utils[\\/]data|_inductor|distributed))[\\/]"
    r"(?!.*[\\/]lib[\\/]python)"  # of an environment below a folder of that name
)


def marked(recording: Recording, standings: Mapping[int, Standing]) -> dict[int, Standing]:
    """The standings, where those ranks say why they can never continue."""
    found = {
        rank: replace(one, never=why)
        for rank, one in standings.items()
        if one.state is RankState.BLOCKED and (why := never_answer(one.record))
    }
    held = _held_up(recording, {**standings, **found})
    return {**standings, **found, **held}


def _held_up(recording: Recording, standings: Mapping[int, Standing]) -> dict[int, Standing]:
    """The ranks whose file lock is held by ranks that can never continue either, since they wait for these in turn."""
    by = {
        rank: one.record.process.held_up_by
        for rank, one in standings.items()
        if one.state is RankState.BLOCKED and one.record.process.held_up_by and not one.record.in_flight
    }
    by = {rank: holders for rank, holders in by.items() if not any(_may_release(standings.get(r)) for r in holders)}
    while by:  # assume that all of them are blocked forever, until that does not contradict itself
        assumed = {rank: replace(one, never="?") if rank in by else one for rank, one in standings.items()}
        blocked = stuck(waits(recording, assumed, _PROVEN), assumed, _PROVEN)
        wrong = [rank for rank, holders in by.items() if not all(r in blocked or assumed[r].never for r in holders)]
        if not wrong:
            break
        by = {rank: holders for rank, holders in by.items() if rank not in wrong}
    return {rank: replace(standings[rank], never=_why(rank, sorted(set(holders)))) for rank, holders in by.items()}


def _why(rank: int, holders: Sequence[int]) -> str:
    if list(holders) == [rank]:
        return "it holds the lock itself, through another descriptor"
    return f"{phrases.ranks(holders)} {phrases.verb(holders, 'holds the lock and waits', 'hold the lock and wait')} in turn"


def _may_release(holder: Standing | None) -> bool:
    """Whether the holder of a lock is no rank, has ended, or has another thread that may run the user's code."""
    return holder is None or holder.state is RankState.ENDED or _has_other_threads(holder.record)


def _has_other_threads(record: RankRecord) -> bool:
    """A timer or an idle pool has no frame of the user's yet: only threads of known services run nothing else."""
    others = [stack for stack in record.stacks if not stack.main]
    return any(stack.user_frames or not any(_SERVICE.search(f.file) for f in stack.frames) for stack in others)
