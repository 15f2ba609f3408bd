"""All types of findings, collected from the modules of their rules."""

from __future__ import annotations

from functools import cache

from ddpnb.recording.findings import FindingType
from ddpnb.rules import catalogue, engine


@cache
def declared() -> dict[str, FindingType]:
    """The types that the modules of the diagnosis declare, by code."""
    kinds = [kind for rule in engine.rules() for kind in rule.kinds]
    kinds += [value for module in engine.modules() for value in vars(module).values() if isinstance(value, FindingType)]
    return {kind.code: kind for kind in kinds}


def type_of(code: str) -> FindingType:
    """The type with this code; where only messages of torch lead to it, as its page names it.

    Raises:
        KeyError: there is no such finding.
    """
    return declared().get(code) or FindingType(code, catalogue.page(code).name)
