"""What gives all ranks the same number of batches: measures that fit the program, and that it does not take already."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.events.models import OptimizerMade
from ddpnb.recording.facts.loading import Loop, views
from ddpnb.recording.facts.snapshot import PerRank
from ddpnb.recording.recording import Recording


def measures(recording: Recording, loops: Mapping[int, Loop], site: Site, *, joins: bool = True) -> str:
    """As alternatives in a sentence.

    Args:
        recording: what the ranks have made.
        loops: over loaders, that ranks run side by side; empty where they loop over something else.
        site: the line of the loop.
        joins: whether Join would make the calls in which ranks wait.
    """
    at = f" at {site.file}:{site.line}" if site != NO_SITE else ""
    if any(loop.loader.kind == "iterable" for loop in loops.values()):
        least = (
            f"a flag in each iteration of the loop{at} (1 on a rank that has a batch, else 0: all_reduce it with ReduceOp.MIN, "
            "and leave the loop where it is 0)"
        )
    else:
        what = "batches of the DataLoader" if loops else "iterations of the loop"
        least = f"the minimum number of {what}{at} (all_reduce it with ReduceOp.MIN before the loop)"
    ways = [*_of_loaders(recording, loops), least]
    if joins and _may_join(recording):
        ways.append("the Join context manager")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}" if len(ways) > 1 else f"take {ways[0]}"


def _of_loaders(recording: Recording, loops: Mapping[int, Loop]) -> list[str]:
    """What the loaders lack for equally many batches."""
    loaders = PerRank(loops).of(lambda loop: loop.loader)
    passes = PerRank(loops).of(lambda loop: loop.passed)
    sizes = loaders.of(lambda loader: loader.batch_size)
    if sizes.split.differs:
        return [f"the same batch_size ({phrases.by_side(sizes.split.sides, lambda rank: str(sizes[rank]))})"]
    if any(loader.kind != "map" for loader in loaders.values()):
        return []
    plain = tuple(rank for rank, loader in loaders.items() if loader.distributed is None)
    if plain:
        if any(loader.own for loader in loaders.values()):
            return []  # a sampler of the user's decides
        also = f" on {phrases.ranks(plain)} too" if len(plain) < len(loaders) else ""
        whole = (
            " over the whole data set instead of a part for each rank"
            if _lengths(recording, loops).split.differs
            else ""
        )
        return [f"DistributedSampler{also}{whole} (it gives all ranks equally many samples)"]
    for name in ("length", "num_replicas", "drop_last"):
        values = passes.of(lambda one, name=name: getattr(one, name))
        if values.split.differs:
            told = phrases.by_side(values.split.sides, lambda rank, values=values: str(values[rank]))
            what = "a data set of the same length" if name == "length" else f"the same {name}"
            return [f"{what} for DistributedSampler ({told})"]
    drops = loaders.of(lambda loader: loader.drop_last)
    return ["drop_last=True in the DataLoader of all ranks"] if drops.split.differs else []


def _lengths(recording: Recording, loops: Mapping[int, Loop]) -> PerRank[int]:
    own = views(recording)
    held = {rank: own[rank].datasets.get(loop.loader.dataset) for rank, loop in loops.items()}
    return PerRank((rank, one.rows.n) for rank, one in held.items() if one is not None and one.rows is not None)


def _may_join(recording: Recording) -> bool:
    """Whether Join helps: a model is wrapped that follows it, and no optimizer keeps a state, which would differ afterwards."""
    records = recording.ranks.values()
    wrapped = any(model.wrapper == "DistributedDataParallel" for record in records for model in record.models)
    made = [event for record in records for event in record.events(OptimizerMade)]
    joins = any(view.joins for view in views(recording).values())
    return wrapped and not joins and not any(map(_keeps_state, made))


def _keeps_state(made: OptimizerMade) -> bool:
    """Only plain SGD steps by gradients and settings alone."""
    return made.class_name != "SGD" or bool(made.settings.get("momentum"))
