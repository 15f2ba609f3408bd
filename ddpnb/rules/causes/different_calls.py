"""Ranks that make different calls with one sequence number because their models, hooks or threads differ."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.facts.digests import models_of
from ddpnb.facts.places import known
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.calls import Site
from ddpnb.model.collectives import call_in
from ddpnb.model.events.models import ModelWrapped
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.rules.divergence import call_swaps, comm_hooks, ddp_setup, model_differs
from ddpnb.rules.divergence.call_swaps import CONCURRENT_USE
from ddpnb.rules.hangs.skipped_call import COLLECTIVE_MISSING, TOGETHER
from ddpnb.source.paths import parting, path_to


def other_model(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """The ranks disagree while they wrap their models: because the models do."""
    concerned = [recording.ranks[r] for r in finding.concerned if r in recording.ranks]
    # Seen while a model is being wrapped, or when a wrapper has refused what it was given.
    wrapping_now = any(wrap.state != "done" for record in concerned for wrap in record.events(ModelWrapped))
    if not wrapping_now:
        return None
    for models in reversed(models_of(recording).values()):
        better = model_differs.find({rank: m for rank, m in models.items() if m.wrapper})
        if better is not None:
            return replace(
                better, evidence=(*better.evidence, *phrases.observed(finding)[:2]), collective=finding.collective
            )
    return None


def not_about_a_model(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP301: a rank was refused as it wrapped its model, because its calls met others than those of a wrapper.

    What torch then says of the models is read from numbers that mean something else.
    """
    for rank in finding.culprits:
        record = recording.ranks[rank]
        wrapped = [event.site for event in record.events(ModelWrapped, state="failed")]
        own = next((call for call in record.calls if call.site in wrapped[-1:]), None)
        if own is None:
            continue
        calls = {other: call_in(one, own.group, own.seq) for other, one in recording.ranks.items() if other != rank}
        met = {other: call for other, call in sorted(calls.items()) if call is not None}
        if not met or any(recording.ranks[other].events(ModelWrapped) for other in met):
            continue
        theirs = met[min(met)]
        way = parting(recording, path_to(recording.ranks[min(met)], theirs), path_to(record, own))
        skipped = len(met) > 1 or (way.relation == "sequence" and way.other.line > way.one.line)
        sides = () if skipped else (tuple(met), (rank,))
        return Finding(
            COLLECTIVE_MISSING,
            f"{phrases.ranks([rank], True)} did not call the {theirs.op} that {phrases.ranks(met)} made{phrases.at(theirs.site)}: "
            f"it wraps its model{phrases.at(own.site)}, and the calls of both were matched.",
            (rank,) if skipped else (),
            tuple(met) if skipped else (),
            theirs,
            known(((rank, own.site), *((other, call.site) for other, call in met.items()))),
            (*finding.evidence, *phrases.undecided(sides)),
            TOGETHER,
            sides=sides,
            certainty="likely",
        )
    return None


def other_hook(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    better = comm_hooks.find(recording)
    return (
        None
        if better is None
        else replace(better, evidence=(*better.evidence, *phrases.observed(finding)[:2]), collective=finding.collective)
    )


def two_threads(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    better = call_swaps.concurrent_use(recording)
    return (
        None
        if better is None
        else replace(better, severity="error", evidence=(*better.evidence, *phrases.observed(finding)[:2]))
    )


def in_another_thread(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP310: the call that others wait in is about to be made by another thread of the rank."""
    found: dict[int, Site] = {}
    for side in finding.sides or (finding.culprits,):
        about_to = _about_to_call(recording, standings, side, tuple(sorted(finding.concerned - set(side))))
        if set(about_to) == set(side):
            found |= about_to
    if not found:
        return None
    waiting = tuple(sorted(finding.concerned - set(found)))
    observed = phrases.observed(finding)
    return _two_threads(
        replace(finding, culprits=tuple(sorted(found)), waiting=waiting, sides=(), evidence=observed), found
    )


def _about_to_call(
    recording: Recording, standings: dict[int, Standing], ranks: tuple[int, ...], waiting: tuple[int, ...]
) -> dict[int, Site]:
    """The lines of another thread of these ranks, if it is in the function in which the others wait."""
    awaited = {(s.file, s.function) for r in waiting if r in standings for s in [standings[r].site]}
    found: dict[int, Site] = {}
    for rank in ranks:
        for stack in recording.ranks[rank].stacks if rank in recording.ranks else ():
            frame = next((one for one in reversed(stack.frames) if one.user), None)
            if frame is not None and not stack.main and (frame.file, frame.function) in awaited:
                found[rank] = Site(frame.file, frame.line, frame.function)
    return found


def _two_threads(finding: Finding, found: dict[int, Site]) -> Finding:
    return replace(
        finding,
        certainty="likely",
        type=CONCURRENT_USE,
        summary=f"Two threads of {'each of ' * (len(found) > 1)}{phrases.ranks(found)} use one group: which call "
        "comes first is nondeterministic.",
        evidence=(
            *(f"Another thread of rank {rank} is at {site} in {site.function}." for rank, site in found.items()),
            *finding.evidence,
        ),
        remedy="Give each thread its own group (dist.new_group, in the same order on all ranks), or let one thread make all "
        "calls.",
    )


def set_up_wrongly(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """What failed is explained by how the model of these very ranks was made."""
    failed = set(finding.culprits) or finding.concerned
    endings = [recording.ranks[rank].ending for rank in failed if rank in recording.ranks]
    if any(e and e.frames and e.frames[-1].user and e.exception != "RuntimeError" for e in endings):
        return None  # the script's own statement raised it
    for better in ddp_setup.find(recording):
        if better.severity == "error" and failed <= (set(better.culprits) or better.concerned):
            waiting = tuple(rank for rank in finding.waiting if rank not in better.culprits)
            waiting = () if better.sides else waiting
            return replace(better, waiting=waiting, evidence=(*better.evidence, *phrases.observed(finding)[:2]))
    return None
