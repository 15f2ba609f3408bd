"""Whether a diagnosis is settled: nothing that ranks may still do changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpnb.recording.calls import CallState
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.findings import Finding
from ddpnb.recording.rank_state import RankState

_MISMATCH_S = 2.0


def is_settled(
    standing: Mapping[int, Standing], held: frozenset[int], errors: Sequence[Finding], patience: float
) -> bool:
    """Whether ranks that have not all ended can no longer change these errors.

    Args:
        standing: of each rank.
        held: the ranks that are blocked forever.
        errors: the findings that are errors.
        patience: seconds.
    """
    return (
        (bool(errors) and _nobody_moves(standing, held, patience))
        or (bool(held) and bool(errors))
        or (bool(errors) and _all_stand_in_calls(standing, patience))
        or any(f.type.after_patience for f in errors)
        or any(_stands_in(standing, f, patience) for f in errors if f.type.mismatch and not _fenced(f))
        or any(_stands_before(standing, f, patience) for f in errors if f.type.group_mismatch)
    )


def _nobody_moves(standing: Mapping[int, Standing], held: frozenset[int], patience: float) -> bool:
    """Whether a rank has failed and none of the others can continue."""
    failed = any(s.record.ending is not None and not s.record.ending.well for s in standing.values())
    return failed and all(
        s.state is RankState.ENDED or rank in held or s.expired(patience) for rank, s in standing.items()
    )


def _stands_in(standing: Mapping[int, Standing], finding: Finding, patience: float) -> bool:
    """Whether ranks are blocked in a mismatch: all have made their calls, but the backend does not complete them."""
    return any(
        rank in standing and standing[rank].call is not None and standing[rank].idle_s >= min(_MISMATCH_S, patience)
        for rank in finding.concerned
    )


def _fenced(finding: Finding) -> bool:
    """Whether ranks are not blocked in the mismatch: the fence has raised an exception, which the program may catch."""
    return finding.collective is not None and finding.collective.state is CallState.FENCED


def _all_stand_in_calls(standing: Mapping[int, Standing], patience: float) -> bool:
    """Whether each rank that has not ended has been blocked in a call for some time.

    In a send or receive for ``patience`` seconds: only then does a discarded Work of its peer count as lost.
    """
    open_ranks = [s for s in standing.values() if s.state is not RankState.ENDED]
    return bool(open_ranks) and all(
        s.call is not None
        and s.state is RankState.WAITING
        and s.idle_s >= (patience if s.call.is_p2p else min(_MISMATCH_S, patience))
        for s in open_ranks
    )


def _stands_before(standing: Mapping[int, Standing], finding: Finding, patience: float) -> bool:
    """Whether a rank is blocked creating a group that the ranks create differently: all may be in that call."""
    making = [standing[r] for r in finding.concerned if r in standing]
    return any(one.state in (RankState.STARTING, RankState.CREATING_GROUP) and one.idle_s >= patience for one in making)
