"""Notes on a time account: what it cannot know, and settings that cost time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from ddpnb.recording.account import Account
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.replicas import Model
from ddpnb.recording.samples import width_of
from ddpnb.recording.timing.quantities import percent, span
from ddpnb.recording.timing.timeline import COMMUNICATION, HELD, Key

_COVERED = 0.99
_COPY_BYTES = 10 << 20  # copying smaller gradients costs nothing measurable
# DDP writes this once if it searched for unused parameters and found none.
_NONE_UNUSED = "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters"


def notes(account: Account, *, clocks_differ: int = 0, cores: float = 0) -> tuple[str, ...]:
    """What the reader of this account must know."""
    lines: list[str] = []
    if account.covered < _COVERED:
        lines.append(
            f"{percent(1 - account.covered)} of the calls are incomplete (lost before they were read, or not recorded "
            "on all ranks): their time counts as compute or communication."
        )
    if account.host_only:
        lines.append(
            "The collectives ran on GPUs: how long these waited is not measured. Listed are ranks whose host "
            "issued its calls later than the others."
        )
    if clocks_differ:
        lines.append(
            f"{clocks_differ} collectives ended before the last rank arrived: the clocks of the ranks differ, "
            "and their waiting is counted as communication."
        )
    threads = sum(rank.threads for rank in account.ranks if rank.device == "cpu")
    if cores and threads > cores:
        lines.append(
            f"{len(account.ranks)} ranks compute with {threads} threads on {cores:g} cores: they compete for cores, and "
            "each waits while others compute."
        )
    return tuple(lines)


def start_notes(account: Account, waits: Iterable[Counter[Key]]) -> tuple[str, ...]:
    """A note if the ranks waited for each other before training began."""
    waits_for: Counter[Key] = Counter()
    for counter in waits:
        waits_for.update(counter)
    del waits_for[COMMUNICATION], waits_for[HELD]
    waited = waits_for.total() * 1e-9
    if waited < max(0.5, 0.05 * sum(rank.wall_s for rank in account.ranks)):
        return ()
    (rank, site), _ = waits_for.most_common(1)[0]
    where = f" in {site}" if site.line else ""
    return (
        f"Before the end of the first step the ranks waited {span(waited)} in total, mostly for rank {rank}{where}.",
    )


def model_notes(recording: Recording) -> tuple[str, ...]:
    """Switches of DDP that could save time in this run, as far as they were recorded."""
    lines: list[str] = []
    record = next((recording.ranks[rank] for rank in sorted(recording.ranks) if recording.ranks[rank].models), None)
    for model in record.models if record is not None else ():
        if record is not None and model.wrapper == "DistributedDataParallel":
            lines += _ddp_notes(model, record)
    return tuple(dict.fromkeys(lines))


def _ddp_notes(model: Model, record: RankRecord) -> list[str]:
    lines: list[str] = []
    name = model.module[:80] or "the model"
    searches = model.options.get("find_unused_parameters") is True
    if searches and _NONE_UNUSED in record.output:
        lines.append(
            f"find_unused_parameters=True makes DDP walk the graph of {name} in every step, and all its parameters "
            "are used: remove it."
        )
    elif searches and model.options.get("static_graph") is False:
        lines.append(
            f"If {name} uses the same parameters in every step, static_graph=True avoids the search for unused ones."
        )
    size = sum(math.prod(one.shape) * width_of(one.dtype) for one in model.parameters if one.trains)
    if model.options.get("gradient_as_bucket_view") is False and size >= _COPY_BYTES:
        lines.append(
            f"gradient_as_bucket_view=True would save {name} a copy of its gradients ({size / (1 << 20):,.0f} MiB) "
            "in every step, and their memory."
        )
    return lines
