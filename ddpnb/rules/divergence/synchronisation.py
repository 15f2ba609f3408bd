"""Gradients that were never synchronised, on some ranks or on all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.events.models import NoSyncEntered
from ddpnb.recording.facts.digests import Difference, Past, against_past
from ddpnb.recording.facts.replicas import Replicas
from ddpnb.recording.findings import FindingType
from ddpnb.recording.replicas import Sample
from ddpnb.rules.divergence.builder import draft_of, either, how_far
from ddpnb.rules.rule import FEW, Draft, each, say

FORWARD_BYPASSED = FindingType("DDP407", "forward-bypassed")
SYNC_SKIPPED = FindingType("DDP408", "sync-skipped")
_SYNC = "require_backward_grad_sync"


def bypassed(own: Replicas) -> Draft | None:
    """DDP407: backward and optimizer steps without a forward of the wrapper."""
    for turn, samples in own.turns("gradients").items():
        past = {r: s for r, s in sorted(samples.items()) if s.backwards and not s.forwards}
        if not past:
            continue
        drift = own.drift
        later = own.going_on.difference(samples)
        if len(past) == len(samples) and later:
            return None  # a rank that reaches this step later may do the same
        everywhere = len(past) == len(own.models)  # a rank without a sample waits for them
        if everywhere and (drift is None or (drift.kind, drift.turn) < ("gradients", turn)):
            return None  # they agree: the script averages the gradients itself
        wrapper = own.model.wrapper
        return Draft(
            say(
                "{who} [trains|train] the wrapped {name} without calling {wrapper}: its gradients are not synchronised.",
                past,
                name=own.name,
                wrapper=wrapper,
            ),
            tuple(past),
            "Call the wrapper itself: output = model(input), not model.module(input). Its forward prepares "
            "the synchronisation of the gradients.",
            {rank: _bypass(sample) for rank, sample in past.items()},
            waiting=phrases.besides(sorted(samples), past),
            evidence=(
                f"Before optimizer step {turn} the module ran backward on {phrases.ranks(past)}, but "
                f"{wrapper}'s own forward was not called since the previous step.",
                *how_far(drift),
            ),
            kind=FORWARD_BYPASSED,
            tensors=drift.tensors[:20] if drift else (),
        )
    return None


def _bypass(sample: Sample) -> Site:
    """Where the wrapped module was called without its wrapper, if recorded; else where the sample was taken."""
    return sample.bypass_site if sample.bypass_site != NO_SITE else sample.site


def sync_differs(own: Replicas) -> Draft | None:
    """DDP408: forwards that do not synchronise on some ranks only, or accumulation over different numbers of forwards."""
    for turn, samples in own.turns("forward").items():
        flags = {rank: sample.sync for rank, sample in samples.items()}
        apart = own.split(flags)
        if not apart.differs or _as_often_by_step(own, samples):
            continue
        past = _past(own, turn, "sync", samples)
        # Which rank ends its first window first shows nothing; one that always synchronised and no longer does, does.
        culprits = apart.blamed((rank for rank in past.changed if flags[rank] == 0.0), past.known)
        off = [rank for rank, flag in flags.items() if flag == 0.0]
        way = _way(own, off)
        since = f"from forward {turn} of {own.name} on."
        return draft_of(
            SYNC_SKIPPED,
            either(
                "{who} [does|do] not synchronise gradients in the same backward passes as the others, {since}",
                "{who} do not synchronise gradients in the same backward passes, {since}",
                culprits,
                samples,
                since=since,
            ),
            samples,
            culprits,
            [
                f"{phrases.ranks([r for r in samples if flags[r] == flag], True)}: forward {turn} {words}."
                for flag, words in ((1.0, "synchronises"), (0.0, way.state))
                if flag in flags.values()
            ],
            f"{way.begin} on all ranks in the same micro-steps: decide by the step number only, and accumulate over "
            "the same number of batches on all ranks.",
            sides=apart.sides,
            at={**samples, **_entered(own, off)},
        )
    return _steps_after_other_numbers(own)


def _steps_after_other_numbers(own: Replicas) -> Draft | None:
    for turn, samples in own.turns("gradients").items():
        apart = own.split({rank: sample.synced for rank, sample in samples.items()})
        # A forward whose backward was left out is another matter.
        complete = all(s.forwards and s.forwards == s.backwards for s in samples.values())
        if not apart.differs or not complete or _rarely(own):
            continue
        culprits = _past(own, turn, "synced", samples).blamed(apart)
        return draft_of(
            SYNC_SKIPPED,
            either(
                "{who} [runs|run] optimizer step {turn} after a different number of synchronised backward passes than "
                "the other ranks.",
                "{who} run optimizer step {turn} after different numbers of synchronised backward passes.",
                culprits,
                samples,
                turn=turn,
            ),
            samples,
            culprits,
            [
                f"Rank {rank}: {_count(sample, 'forwards'):.0f} forwards, {_count(sample, 'synced'):.0f} of them synchronised, "
                f"before optimizer step {turn}."
                for rank, sample in sorted(samples.items())[:FEW]
            ],
            "Accumulate over the same number of batches on all ranks, and step the optimizer after the same batches.",
            sides=apart.sides,
        )
    return None


def _count(sample: Sample, name: str) -> float:
    return getattr(sample, name) or 0.0


def _as_often_by_step(own: Replicas, samples: Mapping[int, Sample]) -> bool:
    """Whether the ranks had synchronised equally often by the optimizer step after these forwards, and each in the last of them.

    The numbers of forwards may differ: ranks that accumulate up to a budget of tokens. So may ranks that have not reached that step.
    """
    counts: set[float | None] = set()
    for rank, sample in samples.items():
        taken = next((one for one in own.of(rank, "gradients") if one.at_ns > sample.at_ns), None)
        if taken is None and rank in own.going_on:
            continue
        if taken is None or not own.last_synchronised(rank, taken):
            return False
        counts.add(taken.synced)
    return len(counts) <= 1 and 0 not in counts and None not in counts


def _rarely(own: Replicas) -> bool:
    """Whether most optimizer steps follow a single forward: then steps were left out, not batches accumulated."""
    counts = [sample.forwards for samples in own.turns("gradients").values() for sample in samples.values()]
    return 2 * counts.count(1) > len(counts)


def _past(own: Replicas, turn: int, name: str, samples: Mapping[int, Sample]) -> Past:
    """The ranks on which a fact has a value that none of their earlier samples had."""
    turns = own.turns(next(iter(samples.values())).kind)
    return against_past(
        {rank: getattr(sample, name) for rank, sample in samples.items()},
        {rank: [getattr(turns[t][rank], name) for t in turns if t < turn and rank in turns[t]] for rank in samples},
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """The words for how a program turns the synchronisation off."""

    state: str  # of a forward
    under: str
    begin: str
    end: str


_WAYS = {
    "no_sync()": _Way("is under no_sync", "under no_sync()", "Enter no_sync()", "Exit no_sync()"),
    _SYNC: _Way(f"has {_SYNC} = False", f"with {_SYNC} = False", f"Set {_SYNC} = False", f"Set {_SYNC} = True"),
}
_UNKNOWN = _Way(
    "does not synchronise",
    "without synchronisation",
    "Turn the synchronisation off",
    "Turn the synchronisation on again",
)


def _turned_off(own: Replicas, rank: int) -> list[NoSyncEntered]:
    return [event for event in own.ranks[rank].events(NoSyncEntered) if event.model == own.number]


def _way(own: Replicas, ranks: Iterable[int]) -> _Way:
    """How these ranks turn the synchronisation of a model off, as far as that was recorded."""
    ways = {event.way for rank in ranks for event in _turned_off(own, rank)}
    return _WAYS.get(ways.pop().partition(" ")[0], _UNKNOWN) if len(ways) == 1 else _UNKNOWN


def _entered(own: Replicas, ranks: Iterable[int]) -> dict[int, Site]:
    """Where these ranks turn the synchronisation off, of those that do it at one line only."""
    entered = {rank: {event.site for event in _turned_off(own, rank)} for rank in ranks}
    return {rank: sites.pop() for rank, sites in entered.items() if len(sites) == 1}


def never_synchronised(own: Replicas, found: Difference) -> Draft:
    """DDP408: no forward since the step before was one after which backward synchronises, on any rank."""
    way = _way(own, found.samples)
    entered = _entered(own, found.samples)
    stepped = [one.site for _, one in sorted(found.samples.items()) if one.site != NO_SITE][:1]
    return draft_of(
        SYNC_SKIPPED,
        f"No rank synchronises the last gradients of {own.name} before optimizer step {found.turn}.",
        found.samples,
        tuple(sorted(found.samples)),
        [
            *each(
                sorted(found.samples),
                lambda rank: (
                    f"Rank {rank}: {_count(found.samples[rank], 'forwards'):.0f} forwards since the previous step, "
                    f"{_count(found.samples[rank], 'forwards') - _count(found.samples[rank], 'synced'):.0f} of them {way.under}, "
                    "the last one included."
                ),
            ),
            *how_far(found),
            *(f"The optimizer steps at {site}." for site in stepped if entered),
        ],
        f"{way.end} before the last backward of each step, also when an epoch ends with fewer micro-batches.",
        tensors=found.tensors,
        at={**found.samples, **entered},
    )
