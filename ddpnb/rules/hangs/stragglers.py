"""DDP315: ranks that others wait for, while nothing is wrong."""

from __future__ import annotations

from ddpnb.facts.compilations import WARM_UP, described
from ddpnb.facts.standings import Standing
from ddpnb.facts.waits import Wait
from ddpnb.model import phrases
from ddpnb.model.events.runs import Compilation
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.rank_state import RankState
from ddpnb.rules.hangs import blocked

STRAGGLER = FindingType("DDP315", "straggler", severity="note")
LATE = "This is no error yet: find out what the late rank does that the others do not."
LATE_COMPILER = f"This is no error, unless the time-out of the group fires first. {WARM_UP}"


def find(standing: dict[int, Standing], found_waits: dict[int, Wait], taken_ns: int) -> list[Finding]:
    """A note on the ranks that others wait for.

    Args:
        standing: where each rank is.
        found_waits: what each waiting rank waits for.
        taken_ns: when this was recorded.
    """
    late = sorted(
        {
            rank
            for wait in found_waits.values()
            for rank in wait.missing
            if rank in standing and (standing[rank].state is RankState.COMPUTING or standing[rank].elsewhere)
        }
    )
    if not late:
        return []
    waiting = sorted(rank for rank, wait in found_waits.items() if wait.missing & set(late))
    call = found_waits[waiting[0]].standing.call
    compiling = all(standing[rank].record.compiling is not None for rank in late)
    compiles = f", where {phrases.verb(late, 'it compiles', 'they compile')}" if compiling else ""
    return [
        Finding(
            STRAGGLER,
            f"{phrases.ranks(late, True)} {phrases.verb(late, 'is a straggler', 'are stragglers')}"
            f"{phrases.at(standing[late[0]].site)}{compiles}; {phrases.ranks(waiting)} {phrases.verb(waiting, 'waits', 'wait')} for {phrases.verb(late, 'it', 'them')}.",
            tuple(late),
            tuple(waiting),
            call,
            tuple((rank, standing[rank].site) for rank in [*late, *waiting]),
            (*(_doing(standing[rank], taken_ns) for rank in late[:8]), *_compiled(standing, late, waiting)),
            LATE_COMPILER if compiling else LATE,
        )
    ]


def _doing(one: Standing, taken_ns: int) -> str:
    if one.record.compiling is not None:
        return f"Rank {one.rank} {described(one.record.compiling, taken_ns)}"
    return f"Rank {one.rank} is {'computing' if one.state is RankState.COMPUTING else blocked.outside([one])}."


def _compiled(standing: dict[int, Standing], late: list[int], waiting: list[int]) -> list[str]:
    """How the first of the waiting ranks compiled what a late one is compiling."""
    now = next((one for rank in late if (one := standing[rank].record.compiling) is not None), None)
    if now is None:
        return []
    same = (
        (rank, one) for rank in waiting for one in standing[rank].record.events(Compilation) if one.site == now.site
    )
    done = {rank: one for rank, one in same if one.part == now.part and one.number <= now.number}
    return [f"Rank {rank} {described(one)}" for rank, one in sorted(done.items())[:1]] or [
        f"{phrases.ranks(waiting, True)} did not compile it."
    ]
