"""Gradients that were never synchronised, on some ranks or on all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ddpnb.facts.digests import Difference, Past, against_past, by_turn, differing, models_of, split
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.calls import Site
from ddpnb.model.events.models import NoSyncEntered
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.rules.divergence.builder import finding_of, how_far, placed

FORWARD_BYPASSED = FindingType("DDP407", "forward-bypassed")
SYNC_SKIPPED = FindingType("DDP408", "sync-skipped")
_SYNC = "require_backward_grad_sync"


def bypassed(recording: Recording, number: int, model: Model, drift: Difference | None) -> Finding | None:
    """DDP407: backward and optimizer steps without a forward of the wrapper."""
    for turn, samples in by_turn(recording, number, "gradients").items():
        past = {r: s for r, s in samples.items() if s.number("backwards") and not s.number("forwards")}
        if not past:
            continue
        everywhere = len(past) == len(models_of(recording)[number])  # a rank without a sample waits for them
        if everywhere and (drift is None or (drift.kind, drift.turn) < ("gradients", turn)):
            return None  # they agree: the script averages the gradients itself
        culprits = tuple(sorted(past))
        waiting = tuple(rank for rank in sorted(samples) if rank not in past)
        where = tuple((rank, _bypass(sample)) for rank, sample in sorted(past.items()))
        return Finding(
            FORWARD_BYPASSED,
            f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'trains', 'train')} the wrapped {model.module} "
            f"without calling {model.wrapper}: its gradients are not synchronised.",
            culprits,
            waiting,
            None,
            known(where),
            (
                f"Before optimizer step {turn} the module ran backward on {phrases.ranks(culprits)}, but "
                f"{model.wrapper}'s own forward was not called since the previous step.",
                *how_far(drift),
            ),
            "Call the wrapper itself: output = model(input), not model.module(input). Its forward prepares "
            "the synchronisation of the gradients.",
            tensors=drift.tensors[:20] if drift else (),
        )
    return None


def sync_differs(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP408: forwards that do not synchronise on some ranks only, or accumulation over different numbers of forwards."""
    for turn, samples in by_turn(recording, number, "forward").items():
        flags = {rank: sample.number("sync") for rank, sample in samples.items()}
        apart = split(flags)
        if apart.differs and not _as_often_by_step(recording, number, samples):
            past = _past(recording, number, turn, "sync", samples, "forward")
            # Which rank ends its first window first shows nothing; one that always synchronised and no longer does, does.
            stopped = [rank for rank in past.changed if flags[rank] == 0.0]
            culprits = apart.blamed(stopped, past.known)
            off = [rank for rank, flag in flags.items() if flag == 0.0]
            way = _way(recording, number, off)
            says = {1.0: "synchronises", 0.0: way.state}
            evidence = [
                f"{phrases.ranks([r for r in samples if flags[r] == flag], True)}: forward {turn} {words}."
                for flag, words in says.items()
                if flag in flags.values()
            ]
            since = f"from forward {turn} of {model.module} on"
            finding = finding_of(
                SYNC_SKIPPED,
                f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'does', 'do')} not synchronise gradients in the "
                f"same backward passes as the others, {since}."
                if culprits
                else f"{phrases.ranks(samples, True)} do not synchronise gradients in the same backward passes, {since}.",
                samples,
                culprits,
                evidence,
                f"{way.begin} on all ranks in the same micro-steps: decide by the step number only, and accumulate over "
                "the same number of batches on all ranks.",
                sides=apart.sides,
            )
            entered = _entered(recording, number, off)
            return placed(finding, known((rank, entered.get(rank, site)) for rank, site in finding.where))
    for turn, samples in by_turn(recording, number, "gradients").items():
        counts = {rank: sample.number("synced") for rank, sample in samples.items()}
        apart = split(counts)
        # A forward whose backward was left out is another matter.
        complete = all(s.number("forwards") and s.number("forwards") == s.number("backwards") for s in samples.values())
        if apart.differs and complete and not _rarely(recording, number):
            culprits = _past(recording, number, turn, "synced", samples, "gradients").blamed(apart)
            return finding_of(
                SYNC_SKIPPED,
                f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'runs', 'run')} optimizer step {turn} after "
                "a different number of synchronised backward passes than the other ranks."
                if culprits
                else f"{phrases.ranks(samples, True)} run optimizer step {turn} after different numbers of synchronised "
                "backward passes.",
                samples,
                culprits,
                [
                    f"Rank {rank}: {sample.number('forwards') or 0:.0f} forwards, {count or 0:.0f} of them synchronised, "
                    f"before optimizer step {turn}."
                    for (rank, sample), count in zip(
                        sorted(samples.items()), [counts[r] for r in sorted(counts)], strict=True
                    )
                ][:8],
                "Accumulate over the same number of batches on all ranks, and step the optimizer after the same batches.",
                sides=apart.sides,
            )
    return None


def _as_often_by_step(recording: Recording, number: int, samples: Mapping[int, Sample]) -> bool:
    """Whether the ranks had synchronised equally often by the optimizer step after these forwards, and each in the last of them.

    The numbers of forwards may differ: ranks that accumulate up to a budget of tokens.
    """
    counts: set[float | None] = set()
    for rank, sample in samples.items():
        steps = (
            one
            for one in recording.ranks[rank].samples
            if (one.model, one.kind) == (number, "gradients") and one.at_ns > sample.at_ns
        )
        taken = next(steps, None)
        if taken is None or not last_synchronised(recording, rank, taken):
            return False
        counts.add(taken.number("synced"))
    return len(counts) == 1 and bool(counts.pop())


def averages_itself(recording: Recording, model: Model, found: Difference) -> bool:
    """Whether the wrapper never synchronised, and the script makes the replicas equal: local SGD does now and then.

    They were equal at a later look, or collectives carried as many elements as each of the parameters has.
    """
    steps = [
        sample
        for rank in found.samples
        for sample in recording.ranks[rank].samples
        if (sample.model, sample.kind) == (found.model, "gradients")
    ]
    if not steps or any(sample.number("synced") for sample in steps):
        return False
    apart = False
    for held in _later(recording, found):
        differs = bool(differing(held, found.units))
        if apart and not differs:
            return True
        apart = apart or differs
    sizes = {math.prod(tensor.shape) for tensor in model.parameters}
    return all(
        sizes.issubset(
            size
            for call in recording.ranks[rank].calls
            if call.entered_ns > then.at_ns
            for size in call.signature.elements
        )
        for rank, then in found.samples.items()
    )


def _later(recording: Recording, found: Difference) -> list[dict[int, Sample]]:
    """The looks at these parameters on all ranks after they differed, in their order."""
    looks: list[dict[int, Sample]] = []
    for kind in ("updated", "forward"):
        for samples in by_turn(recording, found.model, kind).values():
            held = {rank: samples[rank] for rank in found.samples if rank in samples}
            later = all(sample.at_ns > found.samples[rank].at_ns for rank, sample in held.items())
            whole = any(all(unit in sample.digests for sample in held.values()) for unit in found.units)
            if len(held) == len(found.samples) and later and whole:
                looks.append(held)
    return sorted(looks, key=lambda held: max(sample.at_ns for sample in held.values()))


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


def _way(recording: Recording, number: int, ranks: Iterable[int]) -> _Way:
    """How these ranks turn the synchronisation of a model off, as far as that was recorded."""
    ways = {e.way for rank in ranks for e in recording.ranks[rank].events(NoSyncEntered) if e.model == number}
    return _WAYS.get(ways.pop().partition(" ")[0], _UNKNOWN) if len(ways) == 1 else _UNKNOWN


def _entered(recording: Recording, number: int, ranks: list[int]) -> dict[int, Site]:
    """Where these ranks turn the synchronisation off, of those that do it at one line only."""
    entered = {
        rank: [e.site for e in recording.ranks[rank].events(NoSyncEntered) if e.model == number] for rank in ranks
    }
    return {rank: sites[0] for rank, sites in entered.items() if len(set(sites)) == 1}


def _bypass(sample: Sample) -> Site:
    """Where the wrapped module was called without its wrapper, if recorded; else where the sample was taken."""
    seen = sample.facts.get("bypass_site")
    return Site.from_json(seen) if isinstance(seen, dict) else sample.site


def _past(recording: Recording, number: int, turn: int, name: str, samples: Mapping[int, Sample], kind: str) -> Past:
    """The ranks on which a fact has a value that none of their earlier samples had."""
    turns = by_turn(recording, number, kind)
    return against_past(
        {rank: sample.number(name) for rank, sample in samples.items()},
        {rank: [turns[t][rank].number(name) for t in turns if t < turn and rank in turns[t]] for rank in samples},
    )


def last_synchronised(recording: Recording, rank: int, taken: Sample) -> bool:
    """Whether the last forward before these gradients were taken was one after which backward synchronises.

    Of many forwards not all are looked at: where the last one was not, whether any before this step was.
    """
    forwards = [
        s
        for s in recording.ranks[rank].samples
        if (s.model, s.kind) == (taken.model, "forward") and s.at_ns < taken.at_ns
    ]
    if not taken.number("forwards"):
        return True  # none was recorded
    last = forwards[-1] if forwards else None
    if last is None or last.number("forwards") not in (None, taken.number("forwards")):
        return taken.number("synced") != 0
    return bool(last.number("sync"))


def never_synchronised(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP408: no forward since the step before was one after which backward synchronises, on any rank."""
    way = _way(recording, found.model, found.samples)
    finding = finding_of(
        SYNC_SKIPPED,
        f"No rank synchronises the last gradients of {model.module} before optimizer step {found.turn}.",
        found.samples,
        tuple(sorted(found.samples)),
        [
            f"Rank {rank}: {sample.number('forwards'):.0f} forwards since the previous step, {_unsynced(sample)} of them {way.under}, the last one included."
            for rank, sample in sorted(found.samples.items())[:8]
        ]
        + how_far(found),
        f"{way.end} before the last backward of each step, also when an epoch ends with fewer micro-batches.",
        tensors=found.tensors,
    )
    entered = _entered(recording, found.model, list(found.samples))
    stepped = [f"The optimizer steps at {site}." for site in dict.fromkeys(dict(finding.where).values())][:1]
    return replace(
        placed(finding, known((rank, entered.get(rank, site)) for rank, site in finding.where)),
        evidence=(*finding.evidence, *(stepped if entered else ())),
    )


def _unsynced(sample: Sample) -> str:
    return f"{(sample.number('forwards') or 0) - (sample.number('synced') or 0):.0f}"


def _rarely(recording: Recording, number: int) -> bool:
    """Whether most optimizer steps follow a single forward: then steps were left out, not batches accumulated."""
    counts = [
        s.number("forwards")
        for r in recording.ranks.values()
        for s in r.samples
        if (s.model, s.kind) == (number, "gradients")
    ]
    return sum(count == 1 for count in counts) > len(counts) / 2
