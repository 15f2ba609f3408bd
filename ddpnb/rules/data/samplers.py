"""Whether the ranks' shards of the data match, from their DistributedSamplers and data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddpnb.recording import phrases
from ddpnb.recording.events.data import SamplerPass
from ddpnb.recording.facts.loading import (
    Loop,
    Views,
    alike,
    dataset_of,
    inputs_agree,
    one_group,
    order_of,
    side_by_side,
    views,
)
from ddpnb.recording.facts.places import Timed, moments
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.findings import FindingType
from ddpnb.rules.rule import Draft, each, say, title

SAME_DATA = FindingType("DDP501", "same-data")
DATASET_DIFFERS = FindingType("DDP503", "dataset-differs")

_BY_ARGUMENTS = "Omit num_replicas= and rank= of DistributedSampler, or pass dist.get_world_size() and get_rank()."
_SPLIT_BY_RANK = (
    "Pass sampler=DistributedSampler(dataset) to the loader, or use a different part of the data on each rank."
)
_ALIKE = "Give the samplers of all ranks the same data set, seed, epoch and settings; only rank= may differ."
#: what the passes of all ranks must have in common, where it differs in words, and the argument from which it follows
_COMMON = (
    ("shuffle", ("shuffle=", "shuffle= settings"), "shuffle"),
    ("order", ("seed or epoch", "seeds or epochs"), "seed"),
    ("length", ("number of samples in the data set", "numbers of samples in the data set"), ""),
    ("num_samples", ("number of samples for each rank", "numbers of samples for each rank"), ""),
)


def of_samplers(snap: Snapshot, group: tuple[int, ...]) -> Draft | None:
    own = views(snap.recording)
    for loops in side_by_side(group, own):
        passes = PerRank(loops).of(lambda loop: loop.passed if loop.passed is not None and loop.passed.known else None)
        if len(passes) == len(group) and (found := _shards(snap, group, loops, passes, own)) is not None:
            return found
    return None


def _shards(
    snap: Snapshot, group: tuple[int, ...], loops: Mapping[int, Loop], passes: PerRank[SamplerPass], own: Views
) -> Draft | None:
    told = each(passes, lambda rank: _told(rank, passes[rank]))
    counts = PerRank({rank: one.num_replicas for rank, one in passes.items()})
    if counts.split.differs:
        return _settings_differ(loops, counts, ("num_replicas=", "num_replicas= settings"), "num_replicas", told)
    parts = passes[group[0]].num_replicas or 0
    fits = parts == len(group) or one_group(snap.recording)
    one_order = len({one.order for one in passes.values()}) == 1
    claimed = {rank: one.rank for rank, one in passes.items()}
    takers = Counter(claimed.values())
    if parts <= 1 or (len(takers) == 1 and one_order and fits):
        if not fits or not one_order:
            return None
        if parts <= 1 and any(alike(own, loops, rank, group[0]) != "same" for rank in group):
            return None
        places = as_made(loops, "num_replicas" if parts <= 1 else "rank")
        return same(snap, group, places, told, _BY_ARGUMENTS, sliced=parts < len(group))
    if len(takers) < len(group):
        # Ranks that share a shard may be parts of one replica, or take their parts of a batch.
        first = [rank for rank in group if claimed[rank] == takers.most_common(1)[0][0]]
        sliced = parts < len(group) and inputs_agree(snap.recording, first) is False
        return _taken_twice(group, loops, claimed, parts, told) if fits and not sliced else None
    for name, words, setting in _COMMON:
        values = PerRank({rank: getattr(one, name) for rank, one in passes.items()})
        if len(set(values.values())) > 1 and None not in values.values():
            if name == "order" and len({one.seed for one in passes.values()}) == 1:
                words, setting = ("epoch", "epochs"), ""
            return _settings_differ(loops, values, words, setting, told)
    return _contents(group, loops, own, told)


def _told(rank: int, one: SamplerPass) -> str:
    return (
        f"Rank {rank}'s sampler: shard {one.rank} of {one.num_replicas}, seed {one.seed}, epoch {one.epoch}, "
        f"{'shuffled' if one.shuffle else 'not shuffled'}, {one.num_samples} of {one.length} samples."
    )


def _settings_differ(
    loops: Mapping[int, Loop], values: PerRank[Any], what: tuple[str, str], setting: str, told: Sequence[str]
) -> Draft:
    """``setting``: the argument of the sampler from which the values follow, if they do; ``what``: one of them, and several."""
    apart = values.split
    one, several = what
    usual = values[apart.sides[0][0]]
    has = say("of {ranks} [has|have] another {one} than the others", apart.culprits, ranks=apart.culprits, one=one)
    sampler = phrases.verb(apart.culprits, "sampler", "samplers")
    rest = "the shards do not match."
    return differ(
        title(
            f"The {sampler} {has}, {values[apart.culprits[0]]} instead of {usual}: {rest}",
            f"The {sampler} {has}: {rest}",
            f"The {sampler} {has}.",
        )
        if apart.culprits
        else f"The samplers of {phrases.ranks(sorted(values))} have different {several}: {rest}",
        apart.culprits,
        as_made(loops, setting),
        told,
        _ALIKE,
        apart.sides,
    )


def _taken_twice(
    group: tuple[int, ...],
    loops: Mapping[int, Loop],
    claimed: Mapping[int, int | None],
    parts: int,
    told: Sequence[str],
) -> Draft:
    takers = Counter(claimed.values())
    twice = [rank for rank in group if takers[claimed[rank]] > 1]
    wrong = [rank for place, rank in enumerate(group) if rank in twice and claimed[rank] != place] or twice
    shards = ", ".join(str(claimed[rank]) for rank in twice[:8])
    text = "{who} use the same shards of the data: their samplers have rank {shards} of {parts}."
    return differ(say(text, twice, shards=shards, parts=parts), wrong, as_made(loops, "rank"), told, _BY_ARGUMENTS)


def _contents(group: tuple[int, ...], loops: Mapping[int, Loop], own: Views, told: Sequence[str]) -> Draft | None:
    """Whether shards that match are shards of the same data."""
    apart = PerRank({rank: order_of(dataset_of(own, loops, rank)) for rank in group}).split
    kinds = {rank: alike(own, loops, rank, apart.sides[0][0]) for rank in apart.odd}
    wrong = tuple(rank for rank, kind in kinds.items() if kind in ("reordered", "overlapping"))
    if not wrong:
        return None
    reordered = all(kinds[rank] == "reordered" for rank in wrong)
    text = "{who} and {others} hold {what}" if apart.tied else "{who} [holds|hold] {what} than {others}"
    what = "the same samples in a different order" if reordered else "partly different samples"
    says = say(text, wrong, others=phrases.besides(group, wrong), what=what)
    rest = "the shards overlap, and some samples are never seen."
    return differ(
        title(f"{says}: {rest}", f"{says}: the shards overlap."),
        () if apart.tied else wrong,
        loops,
        told,
        "Build the data set identically on all ranks: sort file lists, and pass a seeded generator to random_split and shuffles.",
        apart.sides,
    )


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
    snap: Snapshot,
    group: tuple[int, ...],
    places: Mapping[int, Timed],
    evidence: Iterable[str],
    remedy: str = _SPLIT_BY_RANK,
    *,
    sliced: bool = True,
) -> Draft | None:
    """DDP501, unless the inputs of the model say otherwise (``sliced``: a rank may take its part of a batch)."""
    agree = inputs_agree(snap.recording, group)
    if sliced and agree is False:
        return None
    return Draft(
        f"{phrases.ranks(group, True)} train on the same batches{phrases.at(places[group[0]].site)}.",
        group,
        remedy,
        places,
        evidence=(*evidence, *(["The models received the same inputs."] if agree else [])),
        kind=SAME_DATA,
    )


def differ(
    summary: str,
    culprits: Sequence[int],
    places: Mapping[int, Timed],
    evidence: Sequence[str],
    remedy: str,
    sides: tuple[tuple[int, ...], ...] = (),
) -> Draft:
    """DDP503."""
    return Draft(
        summary,
        culprits,
        remedy,
        places,
        sides=sides,
        evidence=evidence,
        kind=DATASET_DIFFERS,
        moments=moments(places),
    )


def likely(draft: Draft) -> Draft:
    """As a warning: it was inferred."""
    return replace(draft, severity="warning", certainty="likely")
