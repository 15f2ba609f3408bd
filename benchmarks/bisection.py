"""How many probes a bisection takes, and what a probe costs.

``python -m benchmarks.bisection`` counts, over random cases, against the bound d * ceil(log2(n / d)) + 3d and against
ddmin (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002) with a cache of answers; then
simulates a failure that happens in 3 of 10 probes. ``python -m benchmarks.bisection probes`` times probes that hang
against a plain start of the same script by torchrun, and against functions on the ranks of a World that live on.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks import ranks
from benchmarks.rows import Goal, Row
from benchmarks.show import alone
from ddpnb.studies.bisection.search import Search
from ddpnb.studies.bisection.space import Component, Probe, RangeSpace, SetSpace

CASES, LARGEST, ROUNDS, WARM_ROUNDS = 1000, 64, 5, 7
SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(4)
dist.all_reduce(x)
if "--extra" in sys.argv and dist.get_rank() == 0:
    dist.all_reduce(x)
if "--extra" not in sys.argv:
    dist.destroy_process_group()
"""


def ddmin(fails: Callable[[Sequence[str]], bool], names: Sequence[str]) -> list[str]:
    """The published algorithm: subsets, then complements, then a finer division."""
    left, parts = list(names), 2
    while len(left) >= 2:
        bounds = [len(left) * part // parts for part in range(parts + 1)]
        subsets = [left[low:high] for low, high in itertools.pairwise(bounds)]
        complements = [[name for name in left if name not in subset] for subset in subsets]
        if (smaller := next((subset for subset in subsets if fails(subset)), None)) is not None:
            left, parts = smaller, 2
        elif (smaller := next((rest for rest in complements if fails(rest)), None)) is not None:
            left, parts = smaller, max(parts - 1, 2)
        elif parts < len(left):
            parts = min(len(left), 2 * parts)
        else:
            break
    return left


def probes_of_ddmin(names: Sequence[str], culprits: set[str]) -> int:
    tried: set[frozenset[str]] = set()

    def fails(on: Sequence[str]) -> bool:
        tried.add(frozenset(on))
        return culprits <= set(on)

    assert set(ddmin(fails, names)) == culprits
    return len(tried - {frozenset(names), frozenset()})


def probes_of_search(names: Sequence[str], culprits: set[str]) -> int:
    search = Search(SetSpace([Component(name) for name in names]))
    finish(search, lambda probe: culprits <= set(probe.on))
    assert search.result is not None and set(search.result.minimal) == culprits
    besides = 3 + (len(culprits) < len(names))  # the two ends, the result again, and that all others work together
    return len(search.trials) - besides


def finish(search: Search, fails: Callable[[Probe], bool]) -> None:
    while (probe := search.next_probe()) is not None:
        search.answer(probe, "bad" if fails(probe) else "good")


def counts(quick: bool = False) -> Iterator[Row]:
    """probes of a search"""
    chance = random.Random(1)
    for count, wanted in ((8, 3), (64, 6), (1024, 10)):
        found: list[float] = []
        for culprit in range(1, count + 1) if count < 1024 else chance.sample(range(1, count + 1), 100):
            search = Search(RangeSpace("step", range(count + 1)))
            finish(search, lambda probe, culprit=culprit: int(probe.at or 0) >= culprit)
            found.append(len(search.trials) - 4)  # the two ends, and both sides of the result again
        note = "git bisect needs as many: both halve the range"
        yield Row(
            "bisection",
            f"one culprit in an ordered range of {count:,}",
            tuple(found),
            "probes",
            goal=Goal(wanted, "most"),
            note=note,
        )
    ours, theirs, bounds = [], [], []
    for _ in range(20 if quick else CASES):
        names = [f"c{number}" for number in range(chance.randint(2, LARGEST))]
        culprits = set(chance.sample(names, chance.randint(1, min(5, len(names)))))
        d = len(culprits)
        ours.append(probes_of_search(names, culprits))
        theirs.append(probes_of_ddmin(names, culprits))
        bounds.append(d * math.ceil(math.log2(len(names) / d)) + 3 * d)
    over = [one - bound for one, bound in zip(ours, bounds, strict=True) if one > bound]
    more = [one - other for one, other in zip(ours, theirs, strict=True) if one > other]
    note = (
        f"mean {statistics.mean(ours):.1f} against {statistics.mean(theirs):.1f}; above d*ceil(log2(n/d))+3d in {len(over)} "
        f"(by at most {max(over, default=0)}), more than ddmin in {len(more)}"
    )
    what = f"1 to 5 culprits among 2 to {LARGEST}, {len(ours):,} random cases"
    yield Row("bisection", what, tuple(map(float, ours)), "probes", "ddmin", tuple(map(float, theirs)), Goal(1.0), note)


def sometimes(quick: bool = False) -> Iterator[Row]:
    """a failure that happens in 3 of 10 probes"""
    chance = random.Random(1)
    searches = 3 if quick else 100
    right, probes, stated = 0, list[float](), list[float]()
    for _ in range(searches):
        border = chance.randint(1, 63)
        search = Search(RangeSpace("step", range(64)), repeat=None)
        finish(search, lambda probe, border=border: int(probe.at or 0) >= border and chance.random() < 0.3)
        right += search.result is not None and search.result.first_bad == border
        probes.append(len(search.trials))
        stated.append(search.stated_confidence)
    what = "a failure in 3 of 10 probes, range of 64, confidence 0.99: right answers"
    note = f"{right} of {searches}, median {statistics.median(probes):.0f} probes, stated at least {min(stated):.4f}"
    yield Row("bisection", what, (100 * right / searches,), "%", goal=Goal(99.0, "median", least=True), note=note)


def probes(quick: bool = False) -> Iterator[Row]:
    """a probe that hangs, in fresh processes and in a World, against a whole run by torchrun that works"""
    from ddpnb.studies.bisection.command import Request
    from ddpnb.studies.bisection.probing import CommandProber

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    times: dict[str, list[float]] = {"torchrun, works": [], "probe, hangs": [], "probe with --fork, hangs": []}
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "extra.py")
        with open(script, "w") as file:
            file.write(SCRIPT)
        probers = [CommandProber(Request((script, "--extra"), fork=fork)) for fork in (False, True)]
        for number in range(1 if quick else ROUNDS + 1):
            began = time.perf_counter()
            subprocess.run(
                [ranks.TORCHRUN, "--nproc-per-node", "2", script],
                env=ranks.ENVIRONMENT,
                check=True,
                capture_output=True,
                timeout=60,
            )
            seconds = [time.perf_counter() - began]
            for prober in probers:  # one with --fork imports torch for its first probe, which is not counted
                ran = prober.run(Probe())
                assert ran.failures and ran.finding is not None
                seconds.append(ran.seconds)
            if number or quick:
                for values, one in zip(times.values(), seconds, strict=True):
                    values.append(one)
    by_torchrun, fresh, fork = (tuple(values) for values in times.values())
    peer = {"peer": "torchrun, by hand", "theirs": by_torchrun}
    note = "by hand: a run that works; one that hangs lasts until its time-out"
    yield Row(
        "bisection", "a probe that hangs, fresh processes, 2 ranks", fresh, goal=Goal(1.5, "added"), note=note, **peer
    )
    yield Row("bisection", "a probe that hangs, --fork, 2 ranks", fork, goal=Goal(1.5, "added"), **peer)
    world = tuple(warm(1 if quick else WARM_ROUNDS))
    yield Row("bisection", "a probe that hangs, functions in a World, 2 ranks", world, goal=Goal(3.0, "most"), **peer)


def reduce_once() -> None:
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(4))


def reduce_on_rank_0() -> None:
    import torch
    import torch.distributed as dist

    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(4))


def warm(rounds: int) -> list[float]:
    """Seconds of a probe that hangs on ranks that live on: a new process group, the run, its diagnosis and release."""
    import ddpnb

    seconds: list[float] = []
    with ddpnb.launch(2) as world:
        for _ in range(rounds + 1):
            trial = ddpnb.bisect([reduce_once, reduce_on_rank_0], world=world, run=False).step()
            assert trial is not None and trial.answer == "bad"
            seconds.append(trial.seconds)
    return seconds[1:]


if __name__ == "__main__":
    alone("bisection", *((probes,) if "probes" in sys.argv[1:] else (counts, sometimes)))
