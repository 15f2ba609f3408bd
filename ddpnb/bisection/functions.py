"""The configurations of a function with components: which of them are on."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.bisection.command import Trying, Varied
from ddpnb.bisection.space import Component, Kind, Probe, SetSpace


class FunctionSpace:
    """The subsets of named components.

    Args:
        components: in the order in which they run.

    Raises:
        UsageError: there is none, one is named twice, or requires what is not there.

    Example:
        >>> FunctionSpace([Component("loader"), Component("evaluate")]).trying(Probe(("loader",))).command
        ('loader',)
    """

    kind: Kind = "set"
    varied: tuple[Varied, ...] = ()

    def __init__(self, components: Sequence[Component]) -> None:
        self.space = SetSpace(components)

    def trying(self, probe: Probe) -> Trying:
        """What a probe runs: the names that are on."""
        return Trying(probe.on)

    def minimal(self, causes: Sequence[str]) -> list[dict[str, str]]:
        """A failing set as JSON."""
        return [{"name": name, "value": ""} for name in causes]

    def typed(self, _trying: Trying, _options: Sequence[str] = ()) -> str:
        """Empty: no command line runs functions of a notebook."""
        return ""
