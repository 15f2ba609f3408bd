"""State dicts of which strict=False loaded nothing."""

from __future__ import annotations

from ddpnb.facts.places import where
from ddpnb.model.events.models import StateLoaded
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording

PREFIX_MISMATCH = FindingType("DDP602", "prefix-mismatch")


def find(recording: Recording) -> Finding | None:
    """DDP602: strict=False hid that no key of a state dict matches the model."""
    places: dict[int, StateLoaded] = {}
    for rank, record in recording.ranks.items():
        for load in record.events(StateLoaded):
            if load.matched == 0 and load.given:
                places.setdefault(rank, load)
    if not places:
        return None
    named = ", ".join(next(iter(places.values())).keys[:3])
    return Finding(
        PREFIX_MISMATCH,
        "A state dict was loaded with strict=False, but none of its keys match the model's: nothing was loaded.",
        tuple(sorted(places)),
        where=where(places, sorted(places)),
        evidence=(f"The first keys of the state dict: {named}.",) if named else (),
        remedy="Save model.module.state_dict() of the wrapped model, or strip the prefix: "
        "{key.removeprefix('module.'): value for key, value in state.items()}.",
    )
