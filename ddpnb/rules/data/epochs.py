"""Epochs that go over the data in the same order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ddpnb.recording import phrases
from ddpnb.recording.facts.loading import Loading, Loop, views
from ddpnb.recording.facts.places import moments
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.rules.rule import Draft, each, rule, say, title


@rule("DDP502", "epoch-not-set", severity="warning")
def epochs(snap: Snapshot) -> Iterable[Draft]:
    """A permutation that is the same in one epoch after the other."""
    own = PerRank(views(snap.recording))
    found = own.of(lambda view: _repeats(view) or None)
    if not found:
        return
    loops = next(iter(found.values()))
    first, last = loops[0].passed, loops[-1].passed
    assert first is not None and last is not None
    begun = own.of(lambda view: view.training[0] if view.training else None) | found.of(lambda loops: loops[0])
    orders = {rank: loop.passed.order for rank, loop in begun.items() if loop.passed is not None}
    yield Draft(
        title(
            *(
                say(
                    "{who} [reads|read] the data in the same order in every epoch{at}: sampler.set_epoch {set_to}.",
                    found,
                    at=at,
                    set_to=f"got {first.epoch} each time" if last.told > first.told else "was not called in between",
                )
                for at in (phrases.at(loops[0].site), "")
            )
        ),
        tuple(found),
        "Give sampler.set_epoch() the number of the epoch, another one each time."
        if last.told > first.told
        else "Call sampler.set_epoch(epoch) at the beginning of each epoch, before the loop over the loader.",
        found.of(lambda loops: loops[0]),
        evidence=each(
            found,
            lambda rank: f"Rank {rank}: {len(found[rank])} consecutive epochs with seed + epoch = {orders[rank]}.",
        ),
        moments=moments(begun),
    )


def _repeats(view: Loading) -> list[Loop]:
    """The longest of the first consecutive loops over the same permutation, by data set and line."""
    by_data: dict[object, list[Loop]] = {}
    for loop in view.training:
        by_data.setdefault((loop.loader.dataset, loop.site), []).append(loop)
    return max((_first_repeats(loops, view) for loops in by_data.values()), key=len, default=[])


def _first_repeats(loops: Sequence[Loop], view: Loading) -> list[Loop]:
    streak: list[Loop] = []
    for before, loop in pairwise(loops):
        if _same_permutation(before, loop, view):
            streak += [loop] if streak else [before, loop]
        elif streak:
            break
    return streak


def _same_permutation(one: Loop, other: Loop, view: Loading) -> bool:
    a, b = one.passed, other.passed
    if a is None or b is None or a is b or not a.known or not b.known or not a.shuffle or a.dataset < 0:
        return False
    if not one.ended_ns or one.ended_ns > other.began_ns:
        return False  # side by side, within one epoch
    if a.sampler != b.sampler and (a.told or b.told):
        return False  # two samplers in turn; one that is created again for each epoch gets no set_epoch
    if any(one.began_ns < wrapped < other.began_ns for wrapped in view.wrapped_ns):
        return False  # a new model: the same epochs begin again
    if b.told > a.told and not one.complete:
        return False  # a trial that was interrupted, and then the same epoch again, on purpose
    keys = [(p.dataset, p.head, p.order, p.length, p.rank, p.num_replicas) for p in (a, b)]
    return keys[0] == keys[1]
