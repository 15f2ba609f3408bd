"""Attributes of a module that were set on its wrapper."""

from __future__ import annotations

from ddpnb.facts.places import where
from ddpnb.model.events.models import AttributeOnWrapper
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording

HIDDEN_ATTRIBUTE = FindingType("DDP413", "hidden-attribute")


def find(recording: Recording) -> Finding | None:
    """DDP413: an attribute of the module was set on its wrapper, where the module never sees it."""
    events = {r: found[-1] for r, record in recording.ranks.items() if (found := record.events(AttributeOnWrapper))}
    if not events:
        return None
    name = next(iter(events.values())).name
    return Finding(
        HIDDEN_ATTRIBUTE,
        f"{name} is set on the wrapper, but it is an attribute of the wrapped module, which never sees it.",
        tuple(sorted(events)),
        where=where(events, sorted(events)),
        remedy=f"Set it on the module: model.module.{name} = ...",
    )
