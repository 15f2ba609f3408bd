"""Ranks that make different calls with one sequence number because their models, hooks or threads differ."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.recording import phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.events.models import ModelWrapped
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import Recording
from ddpnb.rules.divergence.call_swaps import CONCURRENT_USE, concurrent_use
from ddpnb.rules.divergence.comm_hooks import comm_hooks
from ddpnb.rules.divergence.devices import devices
from ddpnb.rules.divergence.model_differs import model_differs
from ddpnb.rules.divergence.stale_parameters import stale_parameters
from ddpnb.rules.divergence.sync_batchnorm import sync_batchnorm
from ddpnb.rules.rule import MISMATCHES, Draft, explained, findings_of, refine, refined

_MODELS = ("DDP202", "DDP403", "DDP404", "DDP412")


@refine(refines=(*MISMATCHES, "DDP301", "DDP312"), after=("DDP103", "DDP707"), gives=("DDP403", "DDP404"))
def other_model(snap: Snapshot, finding: Finding) -> Draft | None:
    """The ranks disagree while they wrap their models: because the models do."""
    concerned = snap.ranks.among(finding.concerned)
    # Seen while a model is being wrapped, or when a wrapper has refused what it was given.
    if not any(wrap.state != "done" for record in concerned.values() for wrap in record.events(ModelWrapped)):
        return None
    return explained(finding, findings_of(snap.recording, model_differs)[-1:], collective=finding.collective)


@refine(refines=(*MISMATCHES, "DDP301"), after=(*_MODELS, "DDP416"), gives=("DDP310",))
def two_threads(snap: Snapshot, finding: Finding) -> Draft | None:
    """Two threads of a rank have made calls in one group at once."""
    return explained(finding, findings_of(snap.recording, concurrent_use), severity="error")


@refine(refines=(*MISMATCHES, "DDP301"), after=(*_MODELS, "DDP416"), gives=("DDP310",))
def in_another_thread(snap: Snapshot, finding: Finding) -> Draft | None:
    """The call that others wait in is about to be made by another thread of the rank."""
    found: dict[int, Site] = {}
    for side in finding.sides or (finding.culprits,):
        others = tuple(sorted(finding.concerned - set(side)))
        about_to = _about_to_call(snap.recording, snap.standings, side, others)
        if set(about_to) == set(side):
            found |= about_to
    if not found:
        return None
    return refined(
        finding,
        CONCURRENT_USE,
        culprits=tuple(sorted(found)),
        waiting=tuple(sorted(finding.concerned - set(found))),
        sides=(),
        certainty="likely",
        summary=f"Two threads of {'each of ' * (len(found) > 1)}{phrases.ranks(found)} use one group at the same time.",
        evidence=(
            *(f"Another thread of rank {rank} is at {site} in {site.function}." for rank, site in found.items()),
            "Which of their calls comes first is not deterministic.",
            *phrases.observed(finding),
        ),
        remedy="Give each thread its own group (dist.new_group, in the same order on all ranks), or let one thread make all calls.",
    )


def _about_to_call(
    recording: Recording, standings: Mapping[int, Standing], ranks: tuple[int, ...], waiting: tuple[int, ...]
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


#: How models, hooks and optimizers were set up, which may explain a failure.
SETUPS = (devices, model_differs, comm_hooks, sync_batchnorm, stale_parameters)


@refine(refines=MISMATCHES, after=("DDP403", "DDP404"), gives=("DDP202", "DDP412", "DDP416"))
def set_up_wrongly(snap: Snapshot, finding: Finding) -> Draft | None:
    """Calls that differ, or what ranks raised, are explained by how the model of these very ranks was made."""
    failed = set(finding.culprits) or finding.concerned
    ends = snap.ranks.among(failed).of(lambda record: record.ending).values()
    if any(e.frames and e.frames[-1].user and e.exception != "RuntimeError" for e in ends):
        return None  # the script's own statement raised it
    for better in (one for setup in SETUPS for one in findings_of(snap.recording, setup)):
        if better.severity == "error" and failed <= (set(better.culprits) or better.concerned):
            waiting = tuple(rank for rank in finding.waiting if rank not in better.culprits)
            return explained(finding, [better], waiting=() if better.sides else waiting)
    return None


refine(refines=("DDP312",), after=("DDP103", "DDP301", "DDP317", "DDP401", "DDP403", "DDP404", "DDP707"))(
    set_up_wrongly
)
