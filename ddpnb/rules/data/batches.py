"""Loaders that deliver different numbers of batches to the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpnb.facts.loading import Loop, Views, replica_groups, side_by_side, views
from ddpnb.facts.once import once
from ddpnb.facts.places import moments
from ddpnb.facts.snapshot import Snapshot
from ddpnb.model import phrases
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.rules.rule import Draft, each, family, say

UNEVEN_SHARDS = FindingType("DDP504", "uneven-shards", severity="warning")


@family(UNEVEN_SHARDS)
def batches(snap: Snapshot) -> Iterable[Draft]:
    """Different numbers of batches, known before they hurt."""
    whole = len(snap.ranks) == snap.recording.world_size
    if not whole or not all(record.ending is not None and record.ending.well for record in snap.ranks.values()):
        yield from _uneven_shards(snap.recording, stopped=False)


@once
def uneven_shards(recording: Recording, *, stopped: bool = False) -> Finding | None:
    """DDP504 as the cause of another finding.

    Args:
        recording: what is known.
        stopped: the ranks are blocked in collectives, so that a loop that ended on some ranks only
            is as good as two numbers.
    """
    return next((draft.finding((UNEVEN_SHARDS,)) for draft in _uneven_shards(recording, stopped=stopped)), None)


def _uneven_shards(recording: Recording, *, stopped: bool) -> Iterator[Draft]:
    own = views(recording)
    if any(view.joins for view in own.values()):
        return
    for group in replica_groups(recording) or [tuple(own)]:
        for loops in side_by_side(group, own) or _about_to_train(group, own):
            counts = {rank: loop.loader.length for rank, loop in loops.items()}
            if None in counts.values():
                counts = {rank: loop.batches if loop.complete else None for rank, loop in loops.items()}
            known = {rank: count for rank, count in counts.items() if count is not None}
            some = stopped and 0 < len(known) < len(loops) and not any(loop.loader.length for loop in loops.values())
            if some or (len(known) == len(loops) and len(set(known.values())) > 1):
                least = min(known.values())
                yield _uneven(loops, known, [rank for rank, count in known.items() if some or count == least])
                return


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


def _uneven(loops: Mapping[int, Loop], counts: Mapping[int, int], culprits: list[int]) -> Draft:
    rest = phrases.besides(sorted(loops), culprits)
    more = max((counts[rank] for rank in rest if rank in counts), default=None)
    return Draft(
        say(
            "{who} [has|have] {least} batches{at}, ",
            culprits,
            least=counts[culprits[0]],
            at=phrases.at(loops[culprits[0]].site),
        )
        + f"{phrases.ranks(rest)} {phrases.verb(rest, 'has', 'have')} {'more' if more is None else more}.",
        culprits,
        "Give all ranks the same number of batches (DistributedSampler, drop_last=True), or train under Join.",
        loops,
        evidence=each(
            sorted(loops),
            lambda rank: (
                f"Rank {rank}: {counts[rank]} batches{_made_of(loops[rank])}."
                if rank in counts
                else f"Rank {rank}: still in this loop after {loops[rank].steps} steps."
            ),
        ),
        moments=moments(loops) if len(counts) == len(loops) else (),
    )


def _made_of(loop: Loop) -> str:
    loader, passed = loop.loader, loop.passed
    if not loader.batch_size:
        return ""
    samples = f" out of {passed.num_samples} samples" if passed is not None and passed.num_samples else ""
    return f" of {loader.batch_size}{samples}{', an incomplete last batch dropped' * loader.drop_last}"
