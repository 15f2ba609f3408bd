"""How long the comparison of paths takes: ``python -m benchmarks.paths``.

Paths are written by hand, no rank is launched: steps of a training loop with 40 decisions each, of which some depend on the data
of the rank and do no harm. One rank skips a collective in the middle.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from types import CodeType

from benchmarks.rows import Goal, Row
from benchmarks.show import alone
from ddpnb.recorder.stacks.path_codes import described
from ddpnb.recording.facts.paths.partings import ComparedPaths
from ddpnb.recording.path import Code, Kind, Path, number, word

RANKS, DECISIONS, IN_A_STEP, ROUNDS = 16, 100_000, 40, 3
SOURCE = """
def step(rank, data):
    for one in data:
        if one % 2:
            one += 1
    if rank == 0:
        log(one)
    all_reduce()

def main(rank):
    for step_of in range(1000):
        step(rank, step_of)
"""


def codes() -> tuple[Code, Code]:
    module = compile(SOURCE, "/home/user/train.py", "exec")
    functions = {one.co_name: one for one in module.co_consts if isinstance(one, CodeType)}
    return described(functions["step"], user=True), described(functions["main"], user=True)


def ways(code: Code, branch: int) -> tuple[int, int]:
    """The words of a decision: into what it controls, and past it."""
    offset = code.branches[branch].offset
    block = next(block for block in code.blocks if block.start <= offset < block.end)
    return word(Kind.BRANCH, offset, block.end), word(Kind.BRANCH, offset, block.after)


def path(rank: int, decisions: int, *, differ: float, skips: bool) -> Path:
    """A path; ``differ``: the share of its steps with a decision of its own."""
    step, main = codes()
    data, odd, log = (ways(step, branch) for branch in range(3))
    (again, _) = ways(main, 0)
    chance = random.Random(rank)
    words = [word(Kind.BASE, 1), word(Kind.FRAME, 1, 20)]
    inner = (IN_A_STEP - 3) // 2
    made = 0
    for n in range(decisions // IN_A_STEP):
        words += (again, word(Kind.ENTER, 0, 41))
        own = chance.randrange(inner) if chance.random() < differ else -1
        for one in range(inner):
            words += (data[0], odd[(one % 2) ^ (one == own)])
        words += (data[1], log[rank != 0])
        if not (skips and n == decisions // IN_A_STEP // 2):
            made += 1
            words += (word(Kind.CALL, 61, 0, 1), number(made))
        words.append(word(Kind.RETURN, 70))
    return Path({"MainThread": tuple(words)}, (step, main), ("all_reduce", "default_pg"))


def comparisons(quick: bool) -> Iterator[Row]:
    decisions = DECISIONS // 20 if quick else DECISIONS
    for what, differ in (("equal data", 0.0), ("own data in every second step", 0.5)):
        for skips in (False, True):
            paths = {rank: path(rank, decisions, differ=differ, skips=skips and rank == 3) for rank in range(RANKS)}
            taken: list[float] = []
            for _ in range(1 if quick else ROUNDS):
                began = time.process_time()
                found = ComparedPaths(paths).partings()
                taken.append(time.process_time() - began)
                failure = "" if bool(found) == skips else f"{len(found)} partings"
            yield Row(
                "paths",
                f"{RANKS} ranks with {decisions:,} decisions, {what}{', one skips a call' if skips else ''}",
                tuple(taken),
                goal=None if quick else Goal(1.0, "median"),
                failure=failure,
            )


if __name__ == "__main__":
    alone("paths", comparisons)
