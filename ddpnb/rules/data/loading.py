"""What a rank recorded of its data: data sets, samplers, loaders and the loops over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.events.data import (
    DataLoop,
    DatasetSeen,
    JoinEntered,
    LoaderMade,
    LoaderSeen,
    Rows,
    SamplerMade,
    SamplerPass,
)
from ddpnb.model.events.models import ModelWrapped
from ddpnb.model.recording import RankRecord

Likeness = Literal["same", "reordered", "overlapping", "apart", "unknown"]
_KINDS, _KIND = 8, 300  # structures of batches that are kept, and characters of each
# A loader whose batches are far rarer than the optimizer's steps is used now and then, while another one is
# trained on.
_STEPS_PER_BATCH = 4


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


def loading(record: RankRecord) -> Loading:
    loaders = {loader.number: loader for loader in record.events(LoaderSeen)}
    passes = {(one.sampler, one.turn): one for one in record.events(SamplerPass)}
    made = {one.number: one for one in record.events(SamplerMade)}
    loaders_made = {one.number: one for one in record.events(LoaderMade)}

    def found(loop: DataLoop) -> Loop:
        read = _loop(loop, loaders[loop.loader], passes, record)
        sampler = made.get(read.passed.made) if read.passed is not None else None
        return replace(read, made=sampler, loader_made=loaders_made.get(read.loader.made))

    return Loading(
        tuple(found(loop) for loop in record.events(DataLoop) if loop.loader in loaders),
        {dataset.number: dataset for dataset in record.events(DatasetSeen)},
        any(join.enable for join in record.events(JoinEntered)),
        tuple(wrapped.began_ns for wrapped in record.events(ModelWrapped)),
    )


def _loop(
    loop: DataLoop, loader: LoaderSeen, passes: Mapping[tuple[int, int], SamplerPass], record: RankRecord
) -> Loop:
    ended = loop.state != "open"
    steps = (loop.steps or 0) if ended else record.steps - loop.step
    sampler, turn = loop.sampler, loop.passed
    if not ended and loader.distributed is not None:  # which pass it is was not recorded: the first since it began
        own = [(one.began_ns, number) for (of, number), one in passes.items() if of == loader.distributed]
        later = [number for at, number in own if at >= loop.began_ns]
        sampler, turn = loader.distributed, min(later) if later else max((number for _, number in own), default=0)
    return Loop(
        loader,
        loop.site,
        loop.step,
        max(0, steps),
        loop.batches,
        loop.complete,
        passes.get((sampler, turn)) if sampler is not None and turn is not None else None,
        rng=loop.rng,
        began_ns=loop.began_ns,
        ended_ns=loop.ended_ns if ended else 0,
        kinds=tuple(kind[:_KIND] for kind in [*loop.kinds][:_KINDS]),
        heads=loop.heads,
    )


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
