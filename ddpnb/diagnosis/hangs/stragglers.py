"""DDP315: ranks that others wait for, while nothing is wrong."""

from __future__ import annotations

from ddpnb.diagnosis.hangs import blocked
from ddpnb.diagnosis.hangs.rank_state import Standing
from ddpnb.diagnosis.hangs.wait_for_graph import Wait
from ddpnb.model import phrases
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.rank_state import RankState

STRAGGLER = FindingType("DDP315", "straggler", severity="note")


def find(standing: dict[int, Standing], found_waits: dict[int, Wait]) -> list[Finding]:
    """A note on the ranks that others wait for."""
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
    return [
        Finding(
            STRAGGLER,
            f"{phrases.ranks(late, True)} {phrases.verb(late, 'is a straggler', 'are stragglers')}"
            f"{phrases.at(standing[late[0]].site)}; {phrases.ranks(waiting)} {phrases.verb(waiting, 'waits', 'wait')} for {phrases.verb(late, 'it', 'them')}.",
            tuple(late),
            tuple(waiting),
            call,
            tuple((rank, standing[rank].site) for rank in [*late, *waiting]),
            tuple(
                f"Rank {rank} is {'computing' if standing[rank].state is RankState.COMPUTING else blocked.outside([standing[rank]])}."
                for rank in late[:8]
            ),
            "This is no error yet: find out what the late rank does that the others do not.",
        )
    ]
