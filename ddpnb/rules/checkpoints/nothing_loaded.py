"""State dicts of which strict=False loaded nothing."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording.events.models import StateLoaded
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.rules.rule import Draft, rule


@rule("DDP602", "prefix-mismatch")
def nothing_loaded(snap: Snapshot) -> Iterable[Draft]:
    """strict=False hid that no key of a state dict matches the model."""
    loads = snap.every(StateLoaded, matched=0).of(lambda events: next((one for one in events if one.given), None))
    if loads:
        named = ", ".join(next(iter(loads.values())).keys[:3])
        yield Draft(
            "A state dict was loaded with strict=False, but none of its keys match the model's: nothing was loaded.",
            tuple(loads),
            "Save model.module.state_dict() of the wrapped model, or strip the prefix: "
            "{key.removeprefix('module.'): value for key, value in state.items()}.",
            loads,
            evidence=(f"The first keys of the state dict: {named}.",) if named else (),
        )
