"""Runs that resume from a checkpoint without its RNG state, epoch or position."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ddpnb.recording.events.data import DataLoop, LoaderSeen, SamplerPass
from ddpnb.recording.events.models import CheckpointRead, RngRestored, StateLoaded
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.recording import RankRecord
from ddpnb.rules.rule import Draft, rule, say, title

_POSITION = re.compile(r"batch|iter|position|consumed|samples_seen|offset", re.IGNORECASE)


@rule("DDP606", "rng-not-restored", severity="warning")
def resuming(snap: Snapshot) -> Iterable[Draft]:
    """A checkpoint was read, but its RNG state, epoch or position was not restored."""
    places: dict[int, CheckpointRead] = {}
    why: dict[str, None] = {}
    for rank, reads in snap.every(CheckpointRead).items():
        record = snap.ranks[rank]
        for read in reads:
            after = replace(record, history=tuple(e for e in record.history if e.began_ns >= read.began_ns))
            resumed = any(load.what == "optimizer" for load in after.events(StateLoaded))
            if resumed and (reason := _forgotten(read, after, record)):
                places[rank] = read
                why[reason] = None
    if places:
        first, *more = why
        full = say("{who} resumed from a checkpoint, but {first}.", places, first=first)
        short = title(full, say("{who} resumed from a checkpoint without restoring all of it.", places))
        if short != full:
            more = [first, *more]
        yield Draft(
            short,
            tuple(places),
            "Restore all that the checkpoint holds: torch.set_rng_state(...) (and random, numpy, cuda), start at the next "
            "epoch, sampler.set_epoch(epoch), and skip the batches already done.",
            places,
            evidence=[f"The checkpoint: {reason}." for reason in more],
            certainty="likely",
        )


def _from_the_beginning(record: RankRecord, after: RankRecord) -> bool:
    """Whether the first epoch after a checkpoint trained on as many batches as the loader has, or as other epochs had."""
    loop = next(iter(after.events(DataLoop)), None)
    if loop is None or not (loop.batches and loop.complete and loop.steps is not None and loop.steps >= loop.batches):
        return False
    lengths = [loader.length for loader in record.events(LoaderSeen) if loader.number == loop.loader]
    others = [one.batches for one in record.events(DataLoop) if one is not loop and one.site == loop.site]
    whole = max([*filter(None, lengths), *filter(None, others)], default=0)
    return 0 < whole <= loop.batches


def _forgotten(read: CheckpointRead, after: RankRecord, whole: RankRecord) -> str:
    """What of this checkpoint the events after it do not restore."""
    numbers = read.numbers
    if read.generators and not after.events(RngRestored):
        return f"its RNG state ({', '.join(read.generators[:3])}) is never restored"
    epoch = next((numbers[key] for key in numbers if "epoch" in key.lower()), None)
    begun = next((sampler.epoch for sampler in after.events(SamplerPass) if sampler.shuffle), None)
    if epoch and begun is not None and begun < epoch:
        return f"the sampler starts at epoch {begun} again, not after epoch {epoch}"
    position = next((k for k, n in numbers.items() if _POSITION.search(k) and "size" not in k and n > 0), "")
    if position and _from_the_beginning(whole, after):
        return f"its epoch starts from the beginning again, not at {position} {numbers[position]}"
    return ""
