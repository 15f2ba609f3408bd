"""What is seen of live ranks at one moment: what each is doing, and whether it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddpnb.errors import WorldError
from ddpnb.ranks.observe.observer import Observer
from ddpnb.recording import phrases, verbs
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.render.views.status import RankStatus, status
from ddpnb.world.ranks import Ranks


def states(ranks: Ranks) -> tuple[RankStatus, ...]:
    """What every rank is doing in its run."""
    recording = _look(ranks)
    states = status(recording)
    if any(s.state is RankState.BLOCKED and recording.ranks[s.rank].in_flight for s in states):
        states = status(_look(ranks, ask=True))  # only its stack shows that it waits in torch for one of its calls
    return states


def observer(ranks: Ranks) -> Observer:
    """The observer of the last run, which knows more than a new one."""
    if ranks.in_run and ranks.last_monitor is not None:
        return ranks.last_monitor.observer
    return ranks.observer()


def _look(ranks: Ranks, *, ask: bool = False) -> Recording:
    """A Recording of this moment; ``ask``: with the ranks' own stacks."""
    asks = ask or not ranks.processes.recorded
    recording = observer(ranks).record(ask=asks, with_locals=False, follow=False)
    if not ranks.in_run:
        return recording
    # A rank that was replaced has a new process, which was not in that run.
    in_run = {rank: r if rank in ranks.in_run else RankRecord(rank) for rank, r in recording.ranks.items()}
    return replace(recording, ranks=in_run)


def check_responsive(ranks: Ranks, asked: Sequence[int]) -> None:
    """Fail early if a rank cannot answer; the digests of a large model may take long.

    Raises:
        WorldError: a rank is stopped, or native code holds its GIL.
    """
    processes, outside = ranks.processes, ranks.processes.outside()
    stopped, frozen = [rank for rank in asked if processes.stopped(rank)], []
    if not stopped:
        answers = ranks.ask(asked, verbs.Gate())
        processes.check_connection()
        silent = [rank for rank in asked if rank not in answers]
        stopped = [rank for rank in silent if processes.stopped(rank)]  # it takes a moment to stop all threads
        frozen = [rank for rank in silent if any(stack.holds_lock for stack in outside.stacks(rank))]
    if unresponsive := stopped or frozen:
        why = "stopped" if stopped else "blocked in native code that holds the GIL"
        hint = ranks.replaces(unresponsive[0])
        raise WorldError(
            f"{phrases.ranks(unresponsive, True)} {phrases.verb(unresponsive, 'is', 'are')} {why}: the replicas "
            "cannot be compared.",
            f"kill -CONT {processes.pid(unresponsive[0])} lets it continue. {hint}" if stopped else hint,
        )
