"""Ranks that each create their own store: torch retries the connection, or waits, before any group is created."""

from __future__ import annotations

import re

from ddpnb.diagnosis.divergence.digests import split
from ddpnb.diagnosis.hangs.init_facts import knocks_within
from ddpnb.diagnosis.hangs.rank_state import Standing
from ddpnb.diagnosis.hangs.startup import RENDEZVOUS_UNREACHABLE
from ddpnb.diagnosis.places import where
from ddpnb.model import phrases
from ddpnb.model.calls import Site
from ddpnb.model.findings import Finding, Hint
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import Recording

_MAKES = re.compile(r"\b(?:TCPStore|create_c10d_store|_create_c10d_store)\(")
_PORT = re.compile(r"\b(\w*port\w*)['\"]?\s*[:=]\s*['\"]?(\d{1,5})\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,5}")


def apart(recording: Recording, standings: dict[int, Standing], patience: float) -> Finding | None:
    """DDP104: all ranks are blocked creating a store, apparently each its own."""
    open_ranks = {rank: one for rank, one in standings.items() if one.state is not RankState.ENDED}
    if len(open_ranks) < 2 or not all(
        _makes_store(recording, one) and one.expired(patience) for one in open_ranks.values()
    ):
        return None
    stood = [one.idle_s for one in open_ranks.values()]
    if len(open_ranks) < len(standings) or min(stood) < knocks_within(max(stood) - min(stood)):
        return None
    ports = {rank: port for rank, one in open_ranks.items() if (port := _port(one))}
    ranks = sorted(open_ranks)
    found = split(ports)
    unlike = found.differs and len(ports) == len(ranks)  # of a rank whose port is not known nothing can be said
    culprits = found.culprits if unlike else ()
    sides = found.sides if unlike and not culprits else ()
    site = open_ranks[ranks[0]].site
    return Finding(
        RENDEZVOUS_UNREACHABLE,
        f"{phrases.ranks(open_ranks, True)} are blocked creating a store{phrases.at(site)} and do not connect to each other"
        + (": they use different ports." if unlike else "."),
        tuple(culprits),
        () if sides else tuple(rank for rank in ranks if rank not in culprits),
        None,
        where(standings, [*culprits, *(rank for rank in ranks if rank not in culprits)]),
        (
            *(
                f"A port variable of rank {rank} at that line is {port}."
                for rank, port in sorted(ports.items())[:8]
                if unlike
            ),
            *phrases.undecided(sides),
        ),
        "Give all ranks the same address and port: take MASTER_ADDR and MASTER_PORT from the launcher (init_method='env://'), or "
        "let one rank choose a free port and send it to the others.",
        sides=sides,
        certainty="likely",
        hint=Hint(
            site.file,
            site.line,
            "this line creates a store" + ("; its port is the value of a variable named port" if unlike else ""),
        ),
    )


def _makes_store(recording: Recording, one: Standing) -> bool:
    return one.state is RankState.BLOCKED and bool(_MAKES.search(_line(recording, one.site)))


def _line(recording: Recording, site: Site) -> str:
    lines = recording.sources.get(site.file, "").splitlines()
    return lines[site.line - 1] if 0 < site.line <= len(lines) else ""


def _port(one: Standing) -> str:
    """The port that the function which makes the store holds in a variable, or in a dictionary of settings."""
    stack = one.record.main_stack
    frame = stack.innermost_user if stack is not None else None
    for name, value in (frame.locals if frame is not None else {}).items():
        if "port" in name.lower() and _NUMBER.fullmatch(value):
            return value
        told = _PORT.search(value[:4000])
        if told:
            return told[2]
    return ""
