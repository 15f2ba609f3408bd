"""Buffers, and what a wrapper ignores: nothing keeps them equal."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording import phrases
from ddpnb.recording.events.models import BuffersSynced, ParametersIgnored
from ddpnb.recording.facts.digests import Past, differing, extent, values_of
from ddpnb.recording.facts.places import Placed
from ddpnb.recording.facts.replicas import Replicas, Turns
from ddpnb.recording.findings import FindingType
from ddpnb.recording.samples import tensor_name
from ddpnb.rules.divergence.builder import draft_of, few, how_far
from ddpnb.rules.divergence.parameter_edit import REPLICA_DRIFT
from ddpnb.rules.rule import Draft

BUFFER_DRIFT = FindingType("DDP406", "buffer-drift")

_SOON = 4  # forwards
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def buffers_differ(own: Replicas) -> Draft | None:
    """DDP406: buffers differ in a forward, and nothing synchronises them."""
    told = [event for record in own.ranks.values() for event in record.events(BuffersSynced)]
    broadcast = all(event.synced for event in told if event.model == own.number)
    for turn, samples in own.turns("forward").items():
        # After a forward under no_sync they are synchronised one forward later.
        if broadcast and not all(sample.buffers_synced for sample in samples.values()):
            continue
        if units := differing(samples, own.buffers):
            return _of_turn(own, turn, units, broadcast=broadcast)
    return None


def _of_turn(own: Replicas, turn: int, units: tuple[str, ...], *, broadcast: bool) -> Draft:
    turns = own.turns("forward")
    samples = turns[turn]
    tensors = tuple(dict.fromkeys(map(tensor_name, units)))
    apart = own.split({rank: values_of(sample, units) for rank, sample in samples.items()})
    # The ranks that changed them just before this forward; else those that change them later.
    before = _changing(turns, units, samples, turn, turn)
    later = _changing(turns, units, samples, turn + 1, turn + _SOON)
    first = before.blamed(apart)
    culprits = first or later.blamed(apart)
    moved: list[str] = []
    statistics = all(name.endswith(_STATISTICS) for name in tensors)
    if statistics:  # no single rank caused it: the line is where the model was wrapped
        culprits = tuple(sorted(samples))
    elif culprits and apart.tied:
        past, when = (before, "just before") if first else (later, "after")
        moved = [
            f"{phrases.ranks(culprits, True)} changed them {when} that forward; {phrases.ranks(past.unchanged)} did not."
        ]
    wrapper, norms = own.model.wrapper, extent(samples, units[0])
    return draft_of(
        BUFFER_DRIFT,
        f"The buffers of {own.name} differ between ranks since forward {turn}: {few(tensors)}.",
        samples,
        culprits,
        [
            f"{wrapper} broadcast them, but they still differ."
            if broadcast
            else f"{wrapper} is set not to synchronise buffers.",
            *moved,
            *([f"{units[0]}: norm {norms}."] if norms else []),
        ],
        "Let the wrapper synchronise buffers (the default), or use SyncBatchNorm; otherwise evaluate and save from one rank only."
        if statistics
        else "Change buffers identically on all ranks, or broadcast them.",
        tensors=tensors,
        sides=() if culprits else apart.sides,
        certainty="proven" if statistics or not culprits or first else "likely",
        at=own.models if statistics else samples,
    )


def _changing(turns: Turns, units: tuple[str, ...], ranks: Iterable[int], first: int, last: int) -> Past:
    """The ranks on which these parts changed from one forward to the next, in these forwards."""
    seen: dict[int, list[bool]] = {}  # whether they changed, forward by forward
    for rank in sorted(ranks):
        looks = [(turns.get(turn - 1, {}).get(rank), turns.get(turn, {}).get(rank)) for turn in range(first, last + 1)]
        seen[rank] = [values_of(one, units) != values_of(other, units) for one, other in looks if one and other]
    most = max(map(len, seen.values()), default=0)  # a rank of which less was seen may have changed them as well
    known = tuple(rank for rank, moves in seen.items() if moves and (len(moves) == most or any(moves)))
    return Past(tuple(rank for rank in known if any(seen[rank])), known)


def ignored_differ(own: Replicas) -> Draft | None:
    """DDP405: parameters that the wrapper ignores, equal at first and then trained on each rank independently."""
    first = own.turns("forward").get(1, {})
    if len(first) < 2 or differing(first, own.ignored):
        return None
    found = own.difference("updated", "forward", names=own.ignored)
    if found is None:
        return None
    ranks = tuple(sorted(found.samples))
    one = len(found.tensors) == 1
    told = {rank: own.ranks[rank].events(ParametersIgnored) for rank in ranks}
    named: dict[int, Placed] = {rank: events[0] for rank, events in told.items() if len(events) == 1}
    return draft_of(
        REPLICA_DRIFT,
        f"{', '.join(found.tensors[:3])} of {own.name} {'is' if one else 'are'} ignored by {own.model.wrapper} and "
        f"{'differs' if one else 'differ'} between ranks since forward {found.turn}.",
        found.samples,
        ranks,
        [
            "The ranks started with the same values, and each rank's optimizer trains them independently.",
            *how_far(found),
        ],
        "Do not exclude trained parameters from the wrapper, or synchronise their gradients yourself.",
        tensors=found.tensors,
        at={**found.samples, **named},
    )
