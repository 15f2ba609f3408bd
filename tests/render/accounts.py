"""Time accounts as an analysis would give them, and as nobody would."""

from __future__ import annotations

from ddpnb.recording.account import Account, Parts, RankAccount, Straggler
from ddpnb.recording.calls import Site

SITE = Site("/home/user/train.py", 57, "main")


def straggler(rank: int = 2, share: float = 0.9, **more) -> Straggler:
    fields = {
        "waited_s": 12.0,
        "times": 180,
        "sites": ((SITE, 12.0),),
        "because": "it computes longer: 80 ms a step, the others 50 ms",
    }
    return Straggler(rank, share=share, **fields | more)


def rank(number: int = 0, compute=5.0, waiting=4.0, communication=0.5, data=0.5, **more) -> RankAccount:
    fields = {"wall_s": 12.0, "other_s": 2.0, "steps": 200, "steps_per_s": 20.0, "utilisation": 0.48, "threads": 1}
    fields |= {"step": Parts(0.025, 0.02, 0.0025, 0.0025)}
    return RankAccount(number, parts=Parts(compute, waiting, communication, data), **fields | more)


USUAL = Account(tuple(rank(n) for n in range(4)), (straggler(),), "one", notes=("A note.",))
HARDLY = Account(tuple(rank(n, 9.0, 0.1, 0.5, 0.1) for n in range(2)), (straggler(1),), "one")
EMPTY = Account()
