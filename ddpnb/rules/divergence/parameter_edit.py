"""Parameters that were changed outside of an optimizer step, since an earlier run, or loaded on some ranks only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddpnb.recording import phrases
from ddpnb.recording.events.models import CheckpointRead, LoadFailed, StateLoaded
from ddpnb.recording.facts.digests import Difference, Past, differing, values_of
from ddpnb.recording.facts.places import Placed
from ddpnb.recording.facts.replicas import Replicas
from ddpnb.recording.findings import FindingType
from ddpnb.recording.replicas import Sample
from ddpnb.rules.divergence.builder import draft_of, few, how_far, loaded_alone, loads, since_steps
from ddpnb.rules.divergence.optimizers import STEP_TOGETHER, steps_differ
from ddpnb.rules.rule import Draft, each, say

REPLICA_DRIFT = FindingType("DDP405", "replica-drift")
PARTIAL_LOAD = FindingType("DDP601", "partial-load")
#: Why replicas differ, in ``after``: calls or inputs that were mixed, and models that were set up differently.
MIXED = ("DDP309", "DDP310", "DDP503")
SETUP = ("DDP202", "DDP403", "DDP404", "DDP411", "DDP412", "DDP413", "DDP416")
_CHANGE_ALIKE = (
    "Change parameters identically on all ranks, or before the model is wrapped, or broadcast them afterwards: "
    "for p in model.parameters(): dist.broadcast(p.data, src=0)."
)


def drifted(
    own: Replicas,
    found: Difference,
    culprits: Sequence[int],
    since: str,
    evidence: Iterable[str],
    remedy: str = _CHANGE_ALIKE,
    **more: Any,
) -> Draft:
    """DDP405: some ranks, or all, hold other parameters since some moment."""
    some = culprits and set(culprits) < found.samples.keys()
    return draft_of(
        REPLICA_DRIFT,
        say(
            "{who} [holds|hold] parameters of {name} that differ from the other replicas {since}: {tensors}."
            if some
            else "{who} hold different parameters of {name} {since}: {tensors}.",
            culprits if some else found.samples,
            name=own.name,
            since=since,
            tensors=few(found.tensors),
        ),
        found.samples,
        culprits,
        evidence,
        remedy,
        tensors=found.tensors,
        **{"sides": () if culprits else found.sides, **more},
    )


def edited(own: Replicas, found: Difference) -> Draft:
    """DDP405 or DDP601: parameters were changed between a step and the next forward."""
    steps = {rank: sample.step for rank, sample in found.samples.items()}
    if len(set(steps.values())) > 1:  # a rank that has stepped less often
        return steps_differ(own, found, steps)
    past = own.changed_since(found)
    changed = past.changed
    whole = len(past.known) == len(found.samples)  # else a rank of which it is not known may have changed them too
    left_out = _left_out(own, found, past) if whole else ()
    culprits = left_out or (changed if changed and whole and past.unchanged else found.split.culprits)
    held = {values_of(sample, found.units) for sample in found.samples.values()}
    if len(changed) == len(found.samples) == len(held):
        culprits = changed  # each by its own
    many = len(found.tensors)
    evidence = [
        f"Before forward {found.turn} (after {min(steps.values())} optimizer steps) {many} tensor{'s' * (many != 1)} "
        f"{'differs' if many == 1 else 'differ'} between ranks: {', '.join(found.tensors[:6])}.",
    ]
    if changed:
        others = f"; {phrases.ranks(past.unchanged)} did not" if past.unchanged else ""
        evidence.append(
            f"{phrases.ranks(changed, True)} changed them between two checks, without an optimizer step{others}."
        )
    if again := [rank for rank in left_out if own.changes_elsewhere(found, rank)]:
        evidence.append(say("At another time {ranks} [does|do] so too.", again, ranks=tuple(again)))
    evidence += how_far(found)
    if own.turns("forward").get(found.turn - 1, {}).keys() >= found.samples.keys():
        evidence.append(f"At forward {found.turn - 1} all ranks held the same values.")
    loaded = loads(own.recording, "model", found.samples)
    read = any(own.ranks[rank].events(CheckpointRead) for rank in loaded)
    if read and loaded_alone(own.recording, loaded, found.samples):  # the reason
        return _or_for_a_moment(own, found, _loaded_by_some(own, found, loaded, evidence))
    likely = left_out or (culprits == changed and found.split.tied)
    # What they loaded came from their own memory, and this is where.
    at: Mapping[int, Placed] = loaded if loaded and tuple(loaded) == culprits else found.samples
    since = f"since forward {found.turn}"
    draft = drifted(own, found, culprits, since, evidence, certainty="likely" if likely else "proven", at=at)
    return _or_for_a_moment(own, found, draft)


def _left_out(own: Replicas, found: Difference, past: Past) -> tuple[int, ...]:
    """The ranks that left out a change: they make it at other times, or all others, which are the most, made the same one."""
    unchanged = past.unchanged
    if not past.changed or not unchanged:
        return ()
    most = past.changed == tuple(sorted(found.sides[0])) and not found.split.tied
    return unchanged if most or all(own.changes_elsewhere(found, rank) for rank in unchanged) else ()


def _or_for_a_moment(own: Replicas, found: Difference, draft: Draft) -> Draft:
    """A note where the ranks hold the same again at the next optimizer step: they may have parted on purpose."""
    step = own.agree_again(found)
    if step is None:
        return draft if own.looks(found, later=True) or not own.all_go_on else replace(draft, certainty="likely")
    everybody = phrases.ranks(sorted(found.samples), True)
    return replace(
        draft,
        severity="note",
        summary=f"{everybody} computed forward {found.turn} with different parameters: {few(found.tensors)}. "
        f"After optimizer step {step} they hold the same again.",
        remedy="If the ranks part on purpose and come back before each step, as for a sharpness-aware step, nothing is "
        f"wrong. Otherwise: {draft.remedy[0].lower()}{draft.remedy[1:]}",
    )


def _loaded_by_some(own: Replicas, found: Difference, loaded: Mapping[int, StateLoaded], evidence: list[str]) -> Draft:
    """DDP601: the fewest are named, be it those that loaded or those that did not; those whose load failed in a tie."""
    loaders = tuple(loaded)
    others = phrases.besides(sorted(found.samples), loaders)
    failed = {rank: events[-1] for rank in others if (events := own.ranks[rank].events(LoadFailed))}
    since = f"the replicas differ since forward {found.turn}."
    if failed:
        those, rest = tuple(failed), phrases.besides(sorted(found.samples), failed)
        first = len(those) <= len(rest)
        at = failed if first else {**loaded, **failed}
        culprits, waiting = (those, rest) if first else (rest, those)
        likely = len(those) >= len(rest)
        summary = say(
            "{who} failed to load the checkpoint and continued without it; {loaders} loaded it into {name}: {since}",
            those,
            loaders=loaders,
            name=own.name,
            since=since,
        )
        evidence = [*(f"Rank {rank}: {event.error}." for rank, event in list(failed.items())[:4]), *evidence]
        remedy = "Let a failed load end the run, or all_reduce a flag and load on all ranks or on none."
    else:
        at, likely = loaded, True
        culprits, waiting = (others, loaders) if len(loaders) > len(others) else (loaders, others)
        summary = f"Only {phrases.ranks(loaders)} loaded a state dict into {own.name}: {since}"
        remedy = (
            "Load the checkpoint on all ranks, or on rank 0 before the model is wrapped: DistributedDataParallel "
            "broadcasts parameters from rank 0 once, in its constructor."
        )
    return draft_of(
        PARTIAL_LOAD,
        summary,
        found.samples,
        culprits,
        evidence,
        remedy,
        tensors=found.tensors,
        waiting=waiting,
        at=at,
        certainty="likely" if likely else "proven",
    )


def unlike_from_the_start(own: Replicas, found: Difference) -> Draft:
    """DDP405: the wrapper did not make them equal."""
    told = "the wrapper's broadcast did not reach them"
    if own.model.options.get("init_sync") is False:
        told = "init_sync=False, so nothing was broadcast"
    return draft_of(
        REPLICA_DRIFT,
        f"The replicas of {own.name} differ when they are wrapped: {told}.",
        found.samples,
        found.split.culprits,
        how_far(found),
        "Let the wrapper broadcast (init_sync=True, the default), or start all ranks from the same values.",
        tensors=found.tensors,
        sides=found.sides,
        at=own.models,
    )


def in_between(own: Replicas, found: Difference) -> Draft:
    """DDP405: it began in steps that were not checked."""
    before, now = own.last_agreed(found), max(s.step for s in found.samples.values())
    tensors = ", ".join(found.tensors[:6])
    looks = (
        (
            f"After optimizer step {now} these differ between ranks: {tensors}. No earlier check of all ranks is recorded.",
        )
        if before is None
        else (
            f"All ranks held the same values after optimizer step {before}, but not after step {now}: {tensors}.",
            "The steps in between were not checked.",
        )
    )
    ended = {rank: own.ranks[rank] for rank in sorted(found.samples)}
    steps = {rank: one.steps for rank, one in ended.items() if one.ending is not None and one.ending.well}
    apart = len(steps) == len(ended) and len({*steps.values()}) > 1
    return drifted(
        own,
        found,
        found.split.culprits,
        f"since optimizer step {now} or earlier" if before is None else since_steps(before, now),
        [
            *looks,
            *how_far(found),
            *(each(steps, lambda r: f"Rank {r} has run {steps[r]} optimizer steps in all.") if apart else ()),
        ],
        f"{STEP_TOGETHER} Otherwise look for code that changes parameters on these ranks only."
        if apart
        else "Look for code that changes parameters or optimizer state on these ranks only; world.compare() shows at any "
        "time whether they differ.",
        sides=found.sides,
    )


@dataclass(frozen=True, slots=True)
class _End:
    """What all ranks held when an earlier run had ended; ``changed``: the samples of those that it changed."""

    name: str
    changed: Mapping[int, Sample]
    held: Mapping[int, Sample]


def since_earlier_run(own: Replicas, found: Difference) -> Draft | None:
    """DDP405: the replicas of a model of an earlier run differ when it is used again; None: what was before is not known."""
    ends = _ends(own, found)
    units = [unit for unit in found.units if all(unit in one.digests for end in ends for one in end.held.values())]
    if not ends or not units:
        return None
    last = max((place for place, end in enumerate(ends) if not differing(end.held, units)), default=-1)
    if last < 0:
        name = ends[0].name
        return draft_of(
            REPLICA_DRIFT,
            f"The replicas of {own.name} differ since {name} or earlier: {few(found.tensors)}.",
            found.samples,
            found.split.culprits,
            [f"When {name} ended, the ranks already held different values.", *how_far(found)],
            _CHANGE_ALIKE,
            tensors=found.tensors,
            sides=found.sides,
        )
    agreed = ends[last]
    after = ends[last + 1] if last + 1 < len(ends) else None
    now = after.changed if after is not None else found.samples
    moved = (rank for rank in sorted(now) if values_of(now[rank], units) != values_of(agreed.held[rank], units))
    past = Past(tuple(moved), tuple(sorted(found.samples)))
    most = past.changed == tuple(sorted(found.sides[0])) and not found.split.tied
    culprits = past.unchanged if most else past.changed if past.unchanged else found.split.culprits
    at = {**found.samples}
    if after is not None:  # where it was changed, as far as that is known
        at |= {rank: after.changed[rank] for rank in past.changed if rank in culprits}
    return drifted(
        own,
        found,
        culprits,
        f"since {after.name if after is not None else f'the end of {agreed.name}'}",
        [f"When {agreed.name} ended, all ranks held the same values.", *_who(past, after, found), *how_far(found)],
        certainty="likely" if most else "proven",
        at=at,
    )


def _ends(own: Replicas, found: Difference) -> list[_End]:
    """The ends of earlier runs after which it is known what each rank held."""
    held: dict[int, Sample] = {}
    ends: list[_End] = []
    for samples in own.turns("earlier").values():
        held |= samples
        if held.keys() >= found.samples.keys():
            name = str(next(iter(samples.values())).run or "an earlier run")
            ends.append(_End(name, samples, {rank: held[rank] for rank in found.samples}))
    return ends


def _who(past: Past, after: _End | None, found: Difference) -> list[str]:
    """Which ranks changed the parameters, where, and whether that was an optimizer step."""
    if not past.changed:
        return []
    who = f"{phrases.ranks(past.changed, True)} changed {', '.join(found.tensors[:6])}"
    others = f"; {phrases.ranks(past.unchanged)} did not" if past.unchanged else ""
    if after is None:
        return [f"{who} after it and before this run used the model{others}."]
    steps = {int(after.changed[rank].steps or 0) for rank in past.changed}
    how = "without an optimizer step" if steps == {0} else f"in {' and '.join(map(str, sorted(steps)))} optimizer steps"
    return [f"{who} in {after.name}, {how}{others}."]
