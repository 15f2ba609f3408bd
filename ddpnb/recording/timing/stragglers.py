"""Stragglers: which ranks the others waited for, where, and what takes those longer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median

from ddpnb.recording.account import Pattern, RankAccount, Straggler
from ddpnb.recording.calls import Site
from ddpnb.recording.timing.quantities import span
from ddpnb.recording.timing.timeline import Key

_ALWAYS = 0.6  # of all waiting, for one rank: the straggler is always the same
_MOST = 0.8  # of all waiting: the ranks that make it up together
_NAMED = 16  # stragglers at most
_LONGER = 1.1  # than the others, to be said


def name_stragglers(
    ranks: tuple[RankAccount, ...], waits: Mapping[int, Counter[Key]], times: Mapping[int, int]
) -> tuple[tuple[Straggler, ...], Pattern]:
    """The ranks that were waited for, longest first, and whether it was always the same.

    Args:
        ranks: their accounts.
        waits: for each rank the nanoseconds that it waited, per rank and line.
        times: how often each rank came last.
    """
    sums: dict[int, Counter[Site]] = defaultdict(Counter)
    for counter in waits.values():
        for (late, site), length in counter.items():
            if late >= 0 and length > 0:
                sums[late][site] += length
    everything = sum(sites.total() for sites in sums.values())
    if not everything:
        return (), ""
    order = sorted(sums, key=lambda rank: (-sums[rank].total(), rank))
    stragglers = tuple(
        Straggler(
            rank,
            sums[rank].total() * 1e-9,
            sums[rank].total() / everything,
            times.get(rank, 0),
            tuple((site, length * 1e-9) for site, length in sums[rank].most_common(4)),
            _because(rank, ranks, sums[rank].total() * 1e-9),
        )
        for rank in order[:_NAMED]
    )
    return stragglers, _pattern([straggler.share for straggler in stragglers], len(ranks))


def _pattern(shares: list[float], size: int) -> Pattern:
    if shares[0] >= _ALWAYS and size > 1:
        return "one"
    many, together = 0, 0.0
    while together < _MOST and many < len(shares):
        together += shares[many]
        many += 1
    return "some" if 2 * many <= size else "turns"


def _because(rank: int, ranks: tuple[RankAccount, ...], waited_s: float) -> str:
    """What the rank spends more time on than the others, per step where there are steps; of a hold, in all."""
    mine = next((account for account in ranks if account.rank == rank), None)
    others = [account for account in ranks if account.rank != rank]
    if mine is None or not others:
        return ""
    held = median(account.parts.held for account in others)
    if mine.parts.held - held > waited_s / 2 / len(others):
        return f"it was held for {span(mine.parts.held)}" + (f", the others for {span(held)}" if held else "")
    per_step = mine.step is not None and all(account.step is not None for account in others)

    def spent(account: RankAccount, part: str) -> float:
        return getattr(account.step if per_step and account.step is not None else account.parts, part)

    excess: dict[str, tuple[float, float, float]] = {}
    for part in ("data", "compute"):
        own, usual = spent(mine, part), median(spent(account, part) for account in others)
        excess[part] = (own - usual, own, usual)
    part = max(excess, key=lambda name: excess[name][0])
    _, own, usual = excess[part]
    if own <= usual * _LONGER or own <= 0:
        return ""
    what = "it waits longer for data" if part == "data" else "it computes longer"
    return f"{what}: {span(own)}{' a step' if per_step else ''}, the others {span(usual)}"
