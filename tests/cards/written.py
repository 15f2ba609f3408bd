"""Recordings of what no scenario shows, for cards. Each function is named in the first line of a card: ``written/NAME``."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.recording.recording import Process, Recording
from ddpnb.recording.stacks import Frame, Stack
from tests.rules.recordings import Rank, Script, record

PACKAGES = "/venv/lib/python3.12/site-packages"
SCRIPT = Script("""
    def main(rank):
        logger = wandb.init(project="speech")   # logger
        for batch in loader:
            loss = step(batch)
            dist.all_reduce(loss)   # reduce
        dist.barrier()   # barrier

    if __name__ == "__main__":
        mp.spawn(main, nprocs=2)   # spawn
""")


def same_collective() -> Recording:
    """All ranks of a job without a recorder are in one collective at one line."""
    at = SCRIPT.at("reduce")
    frames = (
        Frame(at.file, at.line, at.function, locals={"step": "412"}),
        Frame(f"{PACKAGES}/torch/distributed/distributed_c10d.py", 3000, "all_reduce", user=False),
    )
    known = record(*(Rank(rank, 2).absent() for rank in range(2)), script=SCRIPT)
    ranks = {
        rank: replace(
            one,
            stacks=(Stack("MainThread", frames, main=True),),
            process=Process("idle", 20.0, still_s=20.0),
            unrecorded=True,
        )
        for rank, one in known.ranks.items()
    }
    return replace(known, ranks=ranks)


def logger() -> Recording:
    """Rank 1 starts its tracker, which does not answer; the others wait for it."""
    at = SCRIPT.at("logger")
    frames = (
        Frame(at.file, at.line, at.function),
        Frame(f"{PACKAGES}/wandb/sdk/wandb_init.py", 900, "init", user=False),
        Frame("/usr/lib/python3.12/threading.py", 300, "acquire", user=False),
    )
    blocked = Rank(1, 3).idles(60.0, at).has_stack(*frames)
    return record(
        *(blocked if n == 1 else Rank(n, 3).waits("barrier", SCRIPT.at("barrier")) for n in range(3)), script=SCRIPT
    )


def own_ranks() -> Recording:
    """A script with ``mp.spawn`` that a launcher has started twice."""
    facts = {"how": "torch.multiprocessing.spawn", "count": 2, "joins": True, "command": "python train.py --lr 0.1"}
    ranks = (
        Rank(n, 2).absent().phase("ranks started", "done", SCRIPT.at("spawn", "<module>"), **facts) for n in range(2)
    )
    return record(*(rank.finishes() for rank in ranks), script=SCRIPT)


def silent_host() -> Recording:
    """Two of four ranks are on a host that does not answer."""
    at = SCRIPT.at("reduce")
    ranks = [Rank(n, 4).calls("all_reduce", at) for n in range(4)]
    return record(
        *(r.waits("all_reduce", at) if r.rank < 2 else r for r in ranks), script=SCRIPT, silent_hosts={"node2": [2, 3]}
    )
