"""Loaders that count different numbers of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ddpnb.recording.facts.loading import Loop, Views, replica_groups, side_by_side, views
from ddpnb.recording.facts.once import once
from ddpnb.recording.recording import Recording


class UnevenLoops(NamedTuple):
    """Loops that ranks run side by side, the batches that are known of each, and the ranks with the fewest."""

    loops: Mapping[int, Loop]
    counts: Mapping[int, int]
    fewest: tuple[int, ...]


@once
def uneven_loops(recording: Recording, *, stopped: bool = False) -> UnevenLoops | None:
    """The first loops with different numbers of batches.

    Args:
        recording: what is known.
        stopped: the ranks are blocked in collectives, so that a loop that ended on some ranks only
            is as good as two numbers.
    """
    own = views(recording)
    if any(view.joins for view in own.values()):
        return None
    for group in replica_groups(recording) or [tuple(own)]:
        for loops in side_by_side(group, own) or _about_to_train(group, own):
            counts = {rank: loop.loader.length for rank, loop in loops.items()}
            if None in counts.values():
                counts = {rank: loop.batches if loop.complete else None for rank, loop in loops.items()}
            known = {rank: count for rank, count in counts.items() if count is not None}
            some = stopped and 0 < len(known) < len(loops) and not any(loop.loader.length for loop in loops.values())
            if some or (len(known) == len(loops) and len(set(known.values())) > 1):
                least = min(known.values())
                return UnevenLoops(loops, known, tuple(r for r, count in known.items() if some or count == least))
    return None


def _about_to_train(group: Sequence[int], own: Views) -> list[dict[int, Loop]]:
    """The loops in which the ranks are, before the first step."""
    found: dict[int, Loop] = {}
    for rank in group:
        view = own[rank]
        begun = [loop for loop in view.loops if not loop.ended_ns and any(at < loop.began_ns for at in view.wrapped_ns)]
        if not begun or view.training:
            return []
        found[rank] = begun[0]
    same_line = len({(loop.site.file, loop.site.line) for loop in found.values()}) == 1
    return [found] if same_line else []


def fewer_batches(recording: Recording, ranks: Sequence[int]) -> bool:
    """Whether the loaders counted fewer batches on one of these ranks."""
    found = uneven_loops(recording, stopped=True)
    return found is not None and not set(found.fewest).isdisjoint(ranks)
