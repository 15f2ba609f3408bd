"""Attributes of a module that were set on its wrapper."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording.events.models import AttributeOnWrapper
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.rules.rule import Draft, rule


@rule("DDP413", "hidden-attribute")
def hidden_attribute(snap: Snapshot) -> Iterable[Draft]:
    """An attribute of the module was set on its wrapper, where the module never sees it."""
    if sets := snap.last(AttributeOnWrapper):
        name = next(iter(sets.values())).name
        yield Draft(
            f"{name} is set on the wrapper, but it is an attribute of the wrapped module, which never sees it.",
            tuple(sets),
            f"Set it on the module: model.module.{name} = ...",
            sets,
        )
