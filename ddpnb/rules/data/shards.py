"""Whether the ranks' shards of the data match, from their DistributedSamplers and data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ddpnb.facts.digests import split
from ddpnb.facts.places import Timed, moments, where
from ddpnb.model import phrases
from ddpnb.model.events.data import DatasetSeen, ReplicatedTensor, SamplerPass
from ddpnb.model.events.models import ModelWrapped
from ddpnb.model.events.startup import NewGroup
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.rules.data.loading import Loading, Loop, likeness

SAME_DATA = FindingType("DDP501", "same-data")
DATASET_DIFFERS = FindingType("DDP503", "dataset-differs")

_LOOPS = 16  # of each rank that are compared
_BY_ARGUMENTS = "Omit num_replicas= and rank= of DistributedSampler, or pass dist.get_world_size() and get_rank()."
_SPLIT_BY_RANK = (
    "Pass sampler=DistributedSampler(dataset) to the loader, or use a different part of the data on each rank."
)

Views = Mapping[int, Loading]


def replica_groups(recording: Recording) -> list[tuple[int, ...]]:
    """The ranks that hold replicas of one model: each group of at least two, with all its ranks recorded."""
    groups: set[tuple[int, ...]] = set()
    if any(record.models for record in recording.ranks.values()):
        for record in recording.ranks.values():
            groups.update(model.ranks for model in record.models if model.wrapper)
    elif (all(_wraps(recording, rank) for rank in recording.ranks) or _sharded(recording)) and _one_group(recording):
        groups.add(tuple(range(recording.world_size)))
    return sorted(group for group in groups if len(group) > 1 and all(rank in recording.ranks for rank in group))


def _wraps(recording: Recording, rank: int) -> bool:
    return bool(recording.ranks[rank].events(ModelWrapped))


def _sharded(recording: Recording) -> bool:
    """Whether all ranks average the gradients of one sharded model, and none shares its inputs with others on purpose."""
    whole = tuple(range(recording.world_size))
    return all(
        any(call.op.startswith("reduce_scatter") and call.group.ranks == whole for call in record.calls)
        and record.steps
        and not record.events(ReplicatedTensor)
        for record in recording.ranks.values()
    )


def _one_group(recording: Recording) -> bool:
    """Whether the ranks have no smaller groups than the world: then all of them do the same."""
    return recording.has_all_events and all(
        len(made.ranks) == recording.world_size
        for record in recording.ranks.values()
        for made in record.events(NewGroup)
    )


def of_samplers(recording: Recording, group: tuple[int, ...], views: Views) -> Finding | None:
    for loops in side_by_side(group, views):
        passes = {rank: loop.passed for rank, loop in loops.items() if loop.passed is not None and loop.passed.known}
        if len(passes) < len(group):
            continue
        finding = _shards(recording, group, loops, passes, views)
        if finding is not None:
            return finding
    return None


def side_by_side(group: Sequence[int], views: Views) -> list[dict[int, Loop]]:
    """The training loops that all ranks of a group made at the same line after the same number of steps."""
    training = {rank: views[rank].training[:_LOOPS] for rank in group}
    found = []
    for turn in range(min(map(len, training.values()), default=0)):
        loops = {rank: training[rank][turn] for rank in group}
        if len({(loop.site.file, loop.site.line, loop.step) for loop in loops.values()}) == 1:
            found.append(loops)
    return found


def _shards(
    recording: Recording,
    group: tuple[int, ...],
    loops: Mapping[int, Loop],
    passes: Mapping[int, SamplerPass],
    views: Views,
) -> Finding | None:
    if len({one.num_replicas for one in passes.values()}) > 1:
        parts_of = {rank: one.num_replicas for rank, one in passes.items()}
        return _differ(loops, passes, parts_of, "split the data in {} parts", "num_replicas")
    parts = passes[group[0]].num_replicas or 0
    fits = parts == len(group) or _one_group(recording)
    orders = {rank: one.order for rank, one in passes.items()}
    claimed = {rank: one.rank for rank, one in passes.items()}
    if parts <= 1:
        equal = len(set(orders.values())) == 1 and all(alike(views, loops, rank, group[0]) == "same" for rank in group)
        places = as_made(loops, "num_replicas")
        return same(recording, group, places, _told(passes), _BY_ARGUMENTS) if equal and fits else None
    takers = Counter(claimed.values())
    if len(takers) == 1 and len(set(orders.values())) == 1 and fits:
        return same(recording, group, as_made(loops, "rank"), _told(passes), _BY_ARGUMENTS, sliced=parts < len(group))
    if len(takers) < len(group):
        # Ranks that share a shard may be parts of one replica, or take their parts of a batch.
        first = [rank for rank in group if claimed[rank] == takers.most_common(1)[0][0]]
        sliced = parts < len(group) and inputs_agree(recording, first) is False
        return _taken_twice(loops, passes, group) if fits and not sliced else None
    for values, (what, setting) in (
        ({rank: one.shuffle for rank, one in passes.items()}, ("have shuffle={}", "shuffle")),
        (orders, _seed_or_epoch(passes)),
        ({rank: one.length for rank, one in passes.items()}, ("have a data set of {} samples", "")),
        ({rank: one.num_samples for rank, one in passes.items()}, ("take {} samples", "")),
    ):
        if len(set(values.values())) > 1 and None not in values.values():
            return _differ(loops, passes, values, what, setting)
    return _contents(group, loops, passes, views)


def _taken_twice(loops: Mapping[int, Loop], passes: Mapping[int, SamplerPass], group: tuple[int, ...]) -> Finding:
    claimed = {rank: one.rank for rank, one in passes.items()}
    takers = Counter(claimed.values())
    twice = [rank for rank in group if takers[claimed[rank]] > 1]
    wrong = [rank for place, rank in enumerate(group) if rank in twice and claimed[rank] != place] or twice
    return differs(
        as_made(loops, "rank"),
        wrong,
        f"{phrases.ranks(twice, True)} use the same shards of the data: their samplers have "
        f"rank {', '.join(str(claimed[rank]) for rank in twice[:8])} of {passes[group[0]].num_replicas}.",
        _told(passes),
        _BY_ARGUMENTS,
    )


def _seed_or_epoch(passes: Mapping[int, SamplerPass]) -> tuple[str, str]:
    if len({one.seed for one in passes.values()}) > 1:
        return "shuffle with seed + epoch = {}", "seed"
    return "have a different epoch: seed + epoch = {}", ""


def _contents(
    group: tuple[int, ...], loops: Mapping[int, Loop], passes: Mapping[int, SamplerPass], views: Views
) -> Finding | None:
    """Whether shards that match are shards of the same data."""
    orders = {rank: order_of(dataset_of(views, loops, rank)) for rank in group}
    apart = split(orders)
    if not apart.differs:
        return None
    reference = apart.sides[0][0]
    kinds = {rank: alike(views, loops, rank, reference) for side in apart.sides[1:] for rank in side}
    wrong = sorted(rank for rank, kind in kinds.items() if kind in ("reordered", "overlapping"))
    if not wrong:
        return None
    what = (
        "the same samples in a different order"
        if all(kinds[rank] == "reordered" for rank in wrong)
        else "partly different samples"
    )
    others = phrases.ranks([rank for rank in group if rank not in wrong])
    held = f"hold{'s' * (len(wrong) == 1)} {what} than {others}" if not apart.tied else f"and {others} hold {what}"
    return differs(
        loops,
        () if apart.tied else wrong,
        f"{phrases.ranks(wrong, True)} {held}: the shards overlap, and some samples are never seen.",
        _told(passes),
        "Build the data set identically on all ranks: sort file lists, and pass a seeded generator to random_split and shuffles.",
        apart.sides,
    )


def dataset_of(views: Views, loops: Mapping[int, Loop], rank: int) -> DatasetSeen | None:
    return views[rank].datasets.get(loops[rank].loader.dataset)


def alike(views: Views, loops: Mapping[int, Loop], one: int, other: int) -> str:
    return likeness(dataset_of(views, loops, one), dataset_of(views, loops, other))


def order_of(dataset: DatasetSeen | None) -> str:
    if dataset is None:
        return ""
    return (dataset.rows.order if dataset.rows else "") + "".join(order_of(part) for part in dataset.parts)


# -- the findings


def as_made(loops: Mapping[int, Loop], setting: str) -> Mapping[int, Timed]:
    """Where the samplers were made, if they were given this setting there; else where they are iterated."""
    return {
        rank: loop.made
        if loop.made is not None and getattr(loop.made, setting, None) == getattr(loop.passed, setting, loop)
        else loop
        for rank, loop in loops.items()
    }


def same(
    recording: Recording,
    group: tuple[int, ...],
    places: Mapping[int, Timed],
    evidence: Sequence[str],
    remedy: str = _SPLIT_BY_RANK,
    *,
    sliced: bool = True,
) -> Finding | None:
    """DDP501, unless the inputs of the model say otherwise (``sliced``: a rank may take its part of a batch)."""
    agree = inputs_agree(recording, group)
    if sliced and agree is False:
        return None
    more = ["The models received the same inputs."] if agree else []
    return Finding(
        SAME_DATA,
        f"{phrases.ranks(group, True)} train on the same batches{phrases.at(places[group[0]].site)}.",
        group,
        where=where(places, group),
        evidence=(*evidence, *more),
        remedy=remedy,
    )


def inputs_agree(recording: Recording, group: Sequence[int]) -> bool | None:
    """Whether the wrapped models were given the same inputs on all these ranks; None where that is not known."""
    seen: dict[tuple[int, int], set[object]] = {}
    ranks: dict[tuple[int, int], int] = {}
    for rank in group:
        for sample in recording.ranks[rank].samples:
            value = sample.number("inputs_hash") if sample.kind == "forward" else None
            if value:
                key = (sample.model, sample.turn)
                seen.setdefault(key, set()).add(value)
                ranks[key] = ranks.get(key, 0) + 1
    whole = [len(values) == 1 for key, values in seen.items() if ranks[key] == len(group)]
    return all(whole) if whole else None


def _told(passes: Mapping[int, SamplerPass]) -> list[str]:
    return [
        f"Rank {rank}'s sampler: shard {one.rank} of {one.num_replicas}, seed {one.seed}, epoch {one.epoch}, "
        f"{'shuffled' if one.shuffle else 'not shuffled'}, {one.num_samples} of {one.length} samples."
        for rank, one in sorted(passes.items())[:8]
    ]


def _differ(
    loops: Mapping[int, Loop], passes: Mapping[int, SamplerPass], values: Mapping[int, object], what: str, setting: str
) -> Finding:
    """DDP503 of values that should be alike; ``setting``: the argument of the sampler that they follow from, if they do."""
    apart = split(values)
    odd = apart.odd
    rest = [rank for rank in sorted(values) if rank not in odd]
    theirs = ", ".join(str(values[rank]) for rank in odd[:8])
    return differs(
        as_made(loops, setting),
        apart.culprits,
        f"The samplers of {phrases.ranks(odd)} {what.format(theirs)}, those of {phrases.ranks(rest)} {values[rest[0]]}: "
        "the shards do not match.",
        _told(passes),
        "Give the samplers of all ranks the same data set, seed, epoch and settings; only rank= may differ.",
        apart.sides,
    )


def differs(
    places: Mapping[int, Timed],
    culprits: Sequence[int],
    summary: str,
    evidence: Sequence[str],
    remedy: str,
    sides: tuple[tuple[int, ...], ...] = (),
) -> Finding:
    """DDP503. ``sides``: the groups of ranks that differ, named where there are no culprits."""
    sides = () if culprits else sides
    return Finding(
        DATASET_DIFFERS,
        summary,
        tuple(culprits),
        where=where(places, [*culprits, *phrases.besides(sorted(places), culprits)]),
        evidence=(*evidence, *phrases.undecided(sides)),
        remedy=remedy,
        sides=sides,
        moments=moments(places),
    )
