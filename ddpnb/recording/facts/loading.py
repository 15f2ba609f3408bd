"""What ranks recorded of their data: data sets, samplers, loaders and the loops over them; and who holds replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.events.data import (
    DataLoop,
    DatasetSeen,
    JoinEntered,
    LoaderMade,
    LoaderSeen,
    ReplicatedTensor,
    Rows,
    SamplerMade,
    SamplerPass,
)
from ddpnb.recording.events.models import ModelWrapped
from ddpnb.recording.events.startup import NewGroup
from ddpnb.recording.facts.once import once
from ddpnb.recording.recording import RankRecord, Recording

Likeness = Literal["same", "reordered", "overlapping", "apart", "unknown"]
_KINDS, _KIND = 8, 300  # structures of batches that are kept, and characters of each
# A loader whose batches are far rarer than the optimizer's steps is used now and then, while another one is
# trained on.
_STEPS_PER_BATCH = 4
_LOOPS = 16  # of each rank that are compared


@dataclass(frozen=True, slots=True)
class Loop:
    """One iteration over a loader. ``batches`` and ``complete`` are known once it is over.

    ``made``: how the sampler of ``passed`` was made. ``loader_made``: where the loader was.
    """

    loader: LoaderSeen
    site: Site = NO_SITE
    step: int = 0  # optimizer steps of the run when it began
    steps: int = 0  # and in it
    batches: int | None = None
    complete: bool = False
    passed: SamplerPass | None = None
    made: SamplerMade | None = None
    loader_made: LoaderMade | None = None
    rng: str = ""  # digest of the generator's state when it began
    began_ns: int = 0
    ended_ns: int = 0  # 0: it is not over
    kinds: tuple[str, ...] = ()  # structures of its batches, once it is over
    heads: tuple[float, ...] = ()  # digests of its first batches, once it is over

    @property
    def trains(self) -> bool:
        return self.steps > 0 and (self.batches is None or self.batches * _STEPS_PER_BATCH >= self.steps)


@dataclass(frozen=True, slots=True)
class Loading:
    """All of a rank's loops, in the order in which they began."""

    loops: tuple[Loop, ...] = ()
    datasets: Mapping[int, DatasetSeen] = field(default_factory=dict[int, DatasetSeen])
    joins: bool = False  # under Join, ranks may have different numbers of batches
    wrapped_ns: tuple[int, ...] = ()  # when models were wrapped

    @property
    def training(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.trains)


Views = Mapping[int, Loading]


def loading(record: RankRecord) -> Loading:
    loaders = {loader.number: loader for loader in record.events(LoaderSeen)}
    passes = {(one.sampler, one.turn): one for one in record.events(SamplerPass)}
    made = {one.number: one for one in record.events(SamplerMade)}
    loaders_made = {one.number: one for one in record.events(LoaderMade)}

    def found(loop: DataLoop) -> Loop:
        loader, ended = loaders[loop.loader], loop.state != "open"
        passed = _pass_of(loop, loader, passes)
        return Loop(
            loader,
            loop.site,
            loop.step,
            max(0, (loop.steps or 0) if ended else record.steps - loop.step),
            loop.batches,
            loop.complete,
            passed,
            made.get(passed.made) if passed is not None else None,
            loaders_made.get(loader.made),
            loop.rng,
            loop.began_ns,
            loop.ended_ns if ended else 0,
            tuple(kind[:_KIND] for kind in [*loop.kinds][:_KINDS]),
            loop.heads,
        )

    return Loading(
        tuple(found(loop) for loop in record.events(DataLoop) if loop.loader in loaders),
        {dataset.number: dataset for dataset in record.events(DatasetSeen)},
        any(join.enable for join in record.events(JoinEntered)),
        tuple(wrapped.began_ns for wrapped in record.events(ModelWrapped)),
    )


def _pass_of(loop: DataLoop, loader: LoaderSeen, passes: Mapping[tuple[int, int], SamplerPass]) -> SamplerPass | None:
    """The pass over a sampler that a loop is."""
    if loop.state == "open" and loader.distributed is not None:
        # That was not recorded: workers are given indices before the loop begins, else the first batch is what asks for them.
        own = [one for (of, _), one in sorted(passes.items()) if of == loader.distributed]
        ahead = [one for one in own if one.began_ns < loop.began_ns]
        if loader.num_workers:
            return ahead[-1] if ahead else None
        return own[len(ahead)] if len(own) > len(ahead) else None
    return None if loop.sampler is None or loop.passed is None else passes.get((loop.sampler, loop.passed))


@once
def views(recording: Recording) -> Views:
    """The loading of each rank."""
    return {rank: loading(record) for rank, record in sorted(recording.ranks.items())}


def side_by_side(group: Sequence[int], views: Views) -> list[dict[int, Loop]]:
    """The training loops that all ranks of a group made at the same line after the same number of steps."""
    training = {rank: views[rank].training[:_LOOPS] for rank in group}
    turns = (
        {rank: loops[turn] for rank, loops in training.items()}
        for turn in range(min(map(len, training.values()), default=0))
    )
    return [
        loops for loops in turns if len({(loop.site.file, loop.site.line, loop.step) for loop in loops.values()}) == 1
    ]


def dataset_of(views: Views, loops: Mapping[int, Loop], rank: int) -> DatasetSeen | None:
    return views[rank].datasets.get(loops[rank].loader.dataset)


def alike(views: Views, loops: Mapping[int, Loop], one: int, other: int) -> Likeness:
    """How similar the data sets are over which two ranks loop."""
    return likeness(dataset_of(views, loops, one), dataset_of(views, loops, other))


def order_of(dataset: DatasetSeen | None) -> str:
    if dataset is None:
        return ""
    return (dataset.rows.order if dataset.rows else "") + "".join(order_of(part) for part in dataset.parts)


# -- who holds replicas of one model


@once
def replica_groups(recording: Recording) -> list[tuple[int, ...]]:
    """The ranks that hold replicas of one model: each group of at least two, with all its ranks recorded."""
    records = recording.ranks.values()
    groups: set[tuple[int, ...]] = set()
    if any(record.models for record in records):
        groups = {model.ranks for record in records for model in record.models if model.wrapper}
    elif (all(record.events(ModelWrapped) for record in records) or _sharded(recording)) and one_group(recording):
        groups = {tuple(range(recording.world_size))}
    return sorted(group for group in groups if len(group) > 1 and all(rank in recording.ranks for rank in group))


def _sharded(recording: Recording) -> bool:
    """Whether all ranks average the gradients of one sharded model, and none shares its inputs with others on purpose."""
    whole = tuple(range(recording.world_size))
    return all(
        any(call.op.startswith("reduce_scatter") and call.group.ranks == whole for call in record.calls)
        and record.steps
        and not record.events(ReplicatedTensor)
        for record in recording.ranks.values()
    )


def one_group(recording: Recording) -> bool:
    """Whether the ranks have no smaller groups than the world: then all of them do the same."""
    made = (group for record in recording.ranks.values() for group in record.events(NewGroup))
    return recording.has_all_events and all(len(group.ranks) == recording.world_size for group in made)


def inputs_agree(recording: Recording, group: Sequence[int]) -> bool | None:
    """Whether the wrapped models were given the same inputs on all these ranks; None where that is not known."""
    seen: dict[tuple[int, int], list[float]] = defaultdict(list)
    for rank in group:
        for sample in recording.ranks[rank].samples:
            if sample.kind == "forward" and sample.inputs_hash:
                seen[sample.model, sample.turn].append(sample.inputs_hash)
    whole = [len(set(hashes)) == 1 for hashes in seen.values() if len(hashes) == len(group)]
    return all(whole) if whole else None


# -- what two ranks' data sets have in common


# The least alike part decides; rows of small numbers may be common by chance, positions may not.
_WEIGHT: tuple[Likeness, ...] = ("apart", "overlapping", "reordered", "unknown", "same")
_SHARE, _SHARE_OF_POSITIONS = 0.1, 0.03


def likeness(one: DatasetSeen | None, other: DatasetSeen | None) -> Likeness:
    """How similar the data sets of two ranks are."""
    if one is None or other is None or one.class_name != other.class_name:
        return "unknown"
    found: set[Likeness] = set()
    if one.rows is not None or other.rows is not None:
        found.add(_rows_alike(one.rows, other.rows, _SHARE_OF_POSITIONS if is_subset(one) else _SHARE))
    found.update(likeness(a, b) for a, b in zip(one.parts, other.parts, strict=False))
    if len(one.parts) != len(other.parts) or one.left_out or other.left_out:
        found.add("unknown")
    return min(found, key=_WEIGHT.index) if found else "unknown"


def is_subset(dataset: DatasetSeen | None) -> bool:
    return dataset is not None and dataset.class_name == "torch.utils.data.dataset.Subset"


def _rows_alike(one: Rows | None, other: Rows | None, least: float) -> Likeness:
    if one is None or other is None or not one.order or not other.order:
        return "unknown"
    if one.order == other.order:
        return "same"
    if one.bag and one.bag == other.bag:
        return "reordered"
    share = common(one, other)
    if share is None:
        return "unknown"
    return "overlapping" if share >= least else "apart"


def common(one: Rows, other: Rows) -> float | None:
    """The estimated share of rows that two data sets have in common, of all rows in either.

    Of the smallest hashes of both together, those that are in both.
    """
    mine, theirs = set(one.sketch), set(other.sketch)
    if not mine or not theirs:
        return None
    smallest = sorted(mine | theirs)[: max(len(one.sketch), len(other.sketch))]
    shared = len(mine.intersection(theirs, smallest))
    return shared / len(smallest) if shared > 1 else 0.0
