"""Findings about the data: the same on every rank, in the same order every epoch, or not the same data set.

Only what is certain is reported. Evaluation data may be the same on all ranks, data may be sharded manually,
and ranks that are not replicas of each other may see any data: a finding
needs a model that is wrapped on a group, and loops over loaders in which an optimizer made steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpnb.facts.once import once
from ddpnb.facts.places import moments, where
from ddpnb.model import phrases
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.rules.data import shards, splits, structure
from ddpnb.rules.data.loading import Loading, Loop, loading
from ddpnb.rules.data.shards import Views, replica_groups, side_by_side
from ddpnb.rules.environment.shared_memory import SHARED_MEMORY_LOW

EPOCH_NOT_SET = FindingType("DDP502", "epoch-not-set", severity="warning")
UNEVEN_SHARDS = FindingType("DDP504", "uneven-shards", severity="warning")

_SHM_LOW = 8 << 20  # bytes: less than one batch of pictures


def find(recording: Recording) -> list[Finding]:
    """What is certainly wrong with the data, or worth a warning; the most severe first."""
    views = {rank: loading(record) for rank, record in sorted(recording.ranks.items())}
    found: list[Finding] = []
    for group in replica_groups(recording):
        for look in (shards.of_samplers, splits.same_batches, splits.same_heads, splits.leaks, splits.parts_by_hand):
            finding = look(recording, group, views)
            if finding is not None:
                found.append(finding)
                break
        different = structure.of_batches(recording, group, views)
        found += [different] if different is not None else []
    found += _epochs(views)
    over = len(recording.ranks) == recording.world_size and all(
        record.ending is not None and record.ending.well for record in recording.ranks.values()
    )
    uneven = None if over else uneven_shards(recording)
    found += [uneven] if uneven is not None else []
    return found + _shared_memory(recording, views)


# -- epochs


def _epochs(views: Views) -> list[Finding]:
    """A permutation that is the same in one epoch after the other."""
    found: dict[int, list[Loop]] = {}
    for rank, view in views.items():
        by_data: dict[object, list[Loop]] = {}
        for loop in view.training:
            by_data.setdefault((loop.loader.dataset, loop.site), []).append(loop)
        repeats = max((_repeats(loops, view) for loops in by_data.values()), key=len, default=[])
        if repeats:
            found[rank] = repeats
    if not found:
        return []
    ranks = sorted(found)
    loops = found[ranks[0]]
    first, last = loops[0].passed, loops[-1].passed
    assert first is not None and last is not None
    set_to = f"was set to {first.epoch} each time" if last.told > first.told else "was not called in between"
    return [
        Finding(
            EPOCH_NOT_SET,
            f"{phrases.ranks(ranks, True)} {phrases.verb(ranks, 'iterates', 'iterate')} over the data in the same order in "
            f"every epoch{phrases.at(loops[0].site)}: sampler.set_epoch {set_to}.",
            tuple(ranks),
            where=where({rank: found[rank][0] for rank in ranks}, ranks),
            evidence=tuple(
                f"Rank {rank}: {len(found[rank])} consecutive epochs with seed + epoch = {found[rank][0].passed.order}."  # type: ignore[union-attr]
                for rank in ranks[:8]
            ),
            remedy="Call sampler.set_epoch(epoch) at the beginning of each epoch, before the loop over the loader.",
            moments=moments(
                {
                    rank: found[rank][0] if rank in found else view.training[0]
                    for rank, view in views.items()
                    if view.training
                }
            ),
        )
    ]


def _repeats(loops: Sequence[Loop], view: Loading) -> list[Loop]:
    """The first consecutive loops over the same permutation."""
    streak: list[Loop] = []
    for loop in loops:
        if streak and _same_permutation(streak[-1], loop, view):
            streak.append(loop)
        elif len(streak) > 1:
            break
        else:
            streak = [loop]
    return streak if len(streak) > 1 else []


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


# -- numbers of batches


@once
def uneven_shards(recording: Recording, *, stopped: bool = False) -> Finding | None:
    """DDP504: the ranks' loaders deliver different numbers of batches.

    Args:
        recording: what is known.
        stopped: the ranks are blocked in collectives, so that a loop that ended on some ranks only
            is as good as two numbers.
    """
    views = {rank: loading(record) for rank, record in sorted(recording.ranks.items())}
    if any(view.joins for view in views.values()):
        return None
    for group in replica_groups(recording) or [tuple(sorted(views))]:
        for loops in side_by_side(group, views) or _about_to_train(group, views):
            counts = {rank: loop.loader.length for rank, loop in loops.items()}
            if None in counts.values():
                counts = {rank: loop.batches if loop.complete else None for rank, loop in loops.items()}
            known = {rank: count for rank, count in counts.items() if count is not None}
            if stopped and known and len(known) < len(loops) and not any(loop.loader.length for loop in loops.values()):
                return _uneven(loops, known, sorted(known))
            if len(known) == len(loops) and len(set(known.values())) > 1:
                least = min(known.values())
                return _uneven(loops, known, [rank for rank in known if known[rank] == least])
    return None


def _about_to_train(group: Sequence[int], views: Views) -> list[dict[int, Loop]]:
    """The loops in which the ranks are, before the first step."""
    found: dict[int, Loop] = {}
    for rank in group:
        view = views[rank]
        begun = [loop for loop in view.loops if not loop.ended_ns and any(at < loop.began_ns for at in view.wrapped_ns)]
        if not begun or view.training:
            return []
        found[rank] = begun[0]
    same_line = len({(loop.site.file, loop.site.line) for loop in found.values()}) == 1
    return [found] if found and same_line else []


def _uneven(loops: Mapping[int, Loop], counts: Mapping[int, int], culprits: list[int]) -> Finding:
    rest = list(phrases.besides(sorted(loops), culprits))
    evidence = [
        f"Rank {rank}: {counts[rank]} batches" + _made_of(loops[rank])
        if rank in counts
        else f"Rank {rank}: still in this loop after {loops[rank].steps} steps."
        for rank in sorted(loops)[:8]
    ]
    more = [counts[rank] for rank in rest if rank in counts]
    return Finding(
        UNEVEN_SHARDS,
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'has', 'have')} {counts[culprits[0]]} batches"
        f"{phrases.at(loops[culprits[0]].site)}, {phrases.ranks(rest)} {phrases.verb(rest, 'has', 'have')} "
        + (f"{max(more)}." if more else "more."),
        tuple(culprits),
        where=where(loops, [*culprits, *rest]),
        evidence=tuple(evidence),
        remedy="Give all ranks the same number of batches (DistributedSampler, drop_last=True), or train under Join.",
        moments=moments(loops) if len(counts) == len(loops) else (),
    )


def _made_of(loop: Loop) -> str:
    size, loader = loop.loader.batch_size, loop.loader
    samples = (
        f" out of {loop.passed.num_samples} samples" if loop.passed is not None and loop.passed.num_samples else ""
    )
    dropping = ", an incomplete last batch dropped" if loader.drop_last else ""
    return f" of {size}{samples}{dropping}." if size else "."


# -- shared memory


def _shared_memory(recording: Recording, views: Views) -> list[Finding]:
    free, total = recording.host.get("shm_free"), recording.host.get("shm_total")
    if not isinstance(free, int) or not isinstance(total, int) or free >= _SHM_LOW or not total:
        return []
    loops = {
        rank: next((loop for loop in view.loops if loop.loader.num_workers > 0), None) for rank, view in views.items()
    }
    used = {rank: loop for rank, loop in loops.items() if loop is not None}
    if not used:
        return []
    ranks = sorted(used)
    return [
        Finding(
            SHARED_MEMORY_LOW,
            f"/dev/shm has {free >> 20} MB left of {total >> 20} MB; the DataLoader workers on "
            f"{phrases.ranks(ranks)} pass their batches through it.",
            tuple(ranks),
            where=where(used, ranks),
            evidence=tuple(f"Rank {rank}: {used[rank].loader.num_workers} workers." for rank in ranks[:8]),
            remedy="Make it larger (docker run --shm-size=8g, or --ipc=host), or use fewer workers.",
            severity="note",
        )
    ]
