"""Ranks that each create their own store: torch retries the connection, or waits, before any group is created."""

from __future__ import annotations

import math

from ddpnb.facts.digests import split
from ddpnb.facts.init_facts import knocks_within
from ddpnb.facts.patience import PATIENCE
from ddpnb.facts.places import where
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.events.startup import StoreMade
from ddpnb.model.findings import Finding
from ddpnb.model.rank_state import RankState
from ddpnb.rules.hangs.startup import RENDEZVOUS_UNREACHABLE


def apart(standings: dict[int, Standing], patience: float) -> Finding | None:
    """DDP104: all ranks are blocked creating a store, apparently each its own."""
    open_ranks = {rank: one for rank, one in standings.items() if one.state is not RankState.ENDED}
    made = {rank: store for rank, one in open_ranks.items() if (store := _made(one)) is not None}
    if len(open_ranks) < 2 or len(made) < len(open_ranks):
        return None
    if not all(one.expired(min(patience, PATIENCE)) for one in open_ranks.values()):
        return None
    stood = [one.idle_s for one in open_ranks.values()]
    if len(open_ranks) < len(standings) or min(stood) < knocks_within(max(stood) - min(stood)):
        return None
    ranks = sorted(open_ranks)
    found = split({rank: store.port for rank, store in made.items()})
    culprits = found.culprits
    sides = found.sides if found.differs and not culprits else ()
    masters = [rank for rank in ranks if made[rank].is_master]
    if patience == math.inf and not (found.differs and masters):
        return None  # no proof: what they wait for may be a store of another program
    return Finding(
        RENDEZVOUS_UNREACHABLE,
        f"{phrases.ranks(open_ranks, True)} are blocked creating a store{phrases.at(made[ranks[0]].site)} and do not connect "
        "to each other" + (": they use different ports." if found.differs else "."),
        tuple(culprits),
        () if sides else phrases.besides(ranks, culprits),
        None,
        where(made, [*culprits, *phrases.besides(ranks, culprits)]),
        (
            *(f"Rank {rank}: TCPStore at {made[rank].address}." for rank in ranks[:8]),
            f"{phrases.ranks(masters, True)} {phrases.verb(masters, 'is', 'are')} to listen there (is_master=True)."
            if masters
            else "No rank is to listen there (is_master=True).",
            *phrases.undecided(sides),
        ),
        "Give all ranks the same address and port: take MASTER_ADDR and MASTER_PORT from the launcher (init_method='env://'), or "
        "let one rank choose a free port and send it to the others.",
        sides=sides,
        certainty="proven" if found.differs or not masters else "likely",
    )


def _made(one: Standing) -> StoreMade | None:
    """The store that a rank is blocked in making."""
    made = one.record.events(StoreMade, state="open")
    return made[-1] if made and one.state is RankState.BLOCKED else None
