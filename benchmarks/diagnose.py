"""How long a diagnosis takes, by the number of ranks: ``python -m benchmarks.diagnose``.

Recordings are written by hand, with 50 calls on each rank; no rank is launched. Ranks that decode their own
boxes share no groups, lines or signatures, and neither do these.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from ddpnb.recording.calls import NO_SITE, Call, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.events import read
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.render import card
from ddpnb.rules.diagnose import diagnose

RANKS, CALLS, ROUNDS = (64, 256, 1024, 4096), 50, 3
FILE, STEP_NS, ROW = "/home/user/train.py", 1_000_000, 8
SOURCE = "def main():\n    dist.init_process_group()\n    for batch in loader:\n        dist.all_reduce(loss)\n"


def calls(members: tuple[int, ...], count: int, stands: bool, elements: int = 4) -> tuple[Call, ...]:
    """All-reduces of one group; with ``stands`` the rank waits in the last of them, which has so many elements."""
    group, site = Group(members), Site(FILE, 4, "main")
    usual, last = (Signature("all_reduce", ((n,),), ("float32",), agreed=str(n)) for n in (4, elements))
    made: list[Call] = []
    for n in range(count):
        waits, at = stands and n == count - 1, (n + 1) * STEP_NS
        state = CallState.WAITING if waits else CallState.COMPLETED
        made.append(Call(n, group, n + 1, last if waits else usual, site, state, 7, -1, 0, at, at, 0 if waits else at))
    return tuple(made)


def record(rank: int, world: int, made: tuple[Call, ...], how: str = "stands", state: str = "done") -> RankRecord:
    """A rank that ``stands``, ``computes`` or has ``ended``; ``state``: of its start-up."""
    facts = {"world_size": world, "rank": rank, "backend": "gloo", "address": "localhost:1", "file": FILE, "line": 2}
    site = made[-1].site if made else NO_SITE
    frames = (Frame(FILE, site.line if made else 2, "main"), Frame("/lib/torch/distributed/c10d.py", 9, "wait", False))
    return RankRecord(
        rank,
        1000 + rank,
        made,
        (read("init_process_group", facts, state, 1, 0 if state == "open" else 2),),
        () if how == "ended" else (Stack("main", frames, 7, main=True),),
        Process("computing" if how == "computes" else "idle", 60.0, still_s=60.0),
        Ending("finished", at_ns=STEP_NS * CALLS) if how == "ended" else None,
    )


def one_missing(rank: int, world: int) -> RankRecord:
    gone = rank == 3
    return record(rank, world, calls(tuple(range(world)), CALLS - gone, not gone), "ended" if gone else "stands")


def half_missing(rank: int, world: int) -> RankRecord:
    gone = rank % 2 == 1
    return record(rank, world, calls(tuple(range(world)), CALLS - gone, not gone), "ended" if gone else "stands")


def mismatch(rank: int, world: int) -> RankRecord:
    return record(rank, world, calls(tuple(range(world)), CALLS, True, 5 if rank == 3 else 4))


def at_start(rank: int, world: int) -> RankRecord:
    return record(rank, world, (), "ended" if rank == 3 else "stands", "done" if rank == 3 else "open")


def rows(rank: int, world: int) -> RankRecord:
    """Groups of eight; in each of them one rank is missing."""
    first, gone = rank // ROW * ROW, rank % ROW == 3
    members = tuple(range(first, first + ROW))
    return record(rank, world, calls(members, CALLS - gone, not gone), "ended" if gone else "stands")


def healthy(rank: int, world: int) -> RankRecord:
    return record(rank, world, calls(tuple(range(world)), 4 * CALLS, False), "computes")


CASES: dict[str, Callable[[int, int], RankRecord]] = {
    "one is missing": one_missing,
    "half are missing": half_missing,
    "one mismatch": mismatch,
    "one did not start": at_start,
    "one missing of each 8": rows,
    "healthy, 200 calls": healthy,
}


def main() -> None:
    print(f"seconds for a diagnosis (median of {ROUNDS}), and the lines of its text with most ranks")
    print(f"{'ranks':24}" + "".join(f"{world:>9}" for world in RANKS) + f"{'lines':>9}")
    for name, made in CASES.items():
        row, lines = "", 0
        for world in RANKS:
            times: list[float] = []
            records = {rank: made(rank, world) for rank in range(world)}
            for _ in range(ROUNDS):  # a new Recording each time: it keeps what has been worked out of it
                recording = Recording(world, records, {FILE: SOURCE}, host={"cores": world})
                began = time.perf_counter()
                found = diagnose(recording)
                times.append(time.perf_counter() - began)
            lines = card.text(found, width=100).count("\n") + 1
            row += f"{statistics.median(times):9.3f}"
        print(f"{name:24}{row}{lines:9}", flush=True)


if __name__ == "__main__":
    main()
