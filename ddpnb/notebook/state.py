"""The present state of live ranks, from a picture of them and what is known of their processes and their last run."""

from __future__ import annotations

from ddpnb.notebook.live import Picture
from ddpnb.render.views.present import Present, Processes, RunState, present
from ddpnb.world.live import LiveRanks


def present_state(world: LiveRanks, picture: Picture) -> Present:
    """The state that head, cards, tiles and time line show; asks no rank."""
    ranks, closed = world._ranks, world.closed
    processes = ranks.processes
    dead = {} if closed else {r: processes.exit_status(r) for r in range(ranks.size) if not processes.alive(r)}
    starting = None if closed or world.startup is None else world.startup.state
    steps = {r: step for r in range(ranks.size) if starting is not None and (step := starting.running_of(r))}
    run, state, diagnosis = picture.run, None, None
    if run is not None:
        taking_part = ranks.in_run
        records = picture.recording.ranks
        members = frozenset(
            rank
            for rank in run._monitor.ranks
            if not closed and rank in taking_part and run._monitor.is_in(rank) and records[rank].ending is None
        )
        state = RunState(
            run.outcome, members, frozenset(rank for rank in run._monitor.ranks if rank not in taking_part)
        )
        diagnosis = run._monitor.diagnosis
    return present(
        picture.recording,
        state,
        diagnosis,
        Processes(dead, processes.ends_with_script),
        starting=steps,
        holds=len(world._breakpoints.armed),
        closed=closed,
    )
