"""Jobs whose ranks differ in their environment."""

from __future__ import annotations

from tests.rules.recordings import Rank, line, record

INIT = line(4)


def recorded(make, world=4, script=None, **host):
    """``make(rank)`` says how each rank was set up."""
    ranks = [Rank(number, world).joined(INIT, backend="gloo", asked="gloo") for number in range(world)]
    for rank in ranks:
        make(rank)
    return record(*(rank.finishes() for rank in ranks), script=script, **host)


def joined(**facts):
    return lambda rank: rank.joined(INIT, **{"backend": "gloo", "asked": "gloo", **facts})


def some(culprits, odd, usual=joined()):
    return lambda rank: odd(rank) if rank.rank in culprits else usual(rank)
