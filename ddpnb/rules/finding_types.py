"""All types of findings, collected from the modules of their rules."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

import ddpnb.rules
from ddpnb.model.findings import FindingType
from ddpnb.rules import catalogue, engine


@cache
def declared() -> dict[str, FindingType]:
    """The types that the modules of the diagnosis declare, by code."""
    packages = (one.name for one in walk_packages(ddpnb.rules.__path__, "ddpnb.rules.") if "__main__" not in one.name)
    values = [value for package in packages for value in vars(import_module(package)).values()]
    values += [kind for rule in engine.rules() for kind in rule.kinds]
    return {value.code: value for value in values if isinstance(value, FindingType)}


def type_of(code: str) -> FindingType:
    """The type with this code; where only messages of torch lead to it, as its page names it.

    Raises:
        KeyError: there is no such finding.
    """
    return declared().get(code) or FindingType(code, catalogue.page(code).name)
