"""The configurations of functions: which components are on, or how many functions of a list are called."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.bisection.space import Component, Kind, Probe, RangeSpace, SetSpace
from ddpnb.bisection.varied import Trying, Varied
from ddpnb.errors import UsageError

FUNCTION = "function"  # what a space of the beginnings of a list varies
NONE = "none"  # of the functions of a list


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


class PrefixSpace:
    """The beginnings of a list of functions: none of them, the first, the first two, and so on to all.

    Args:
        names: of the functions, in the order in which they are called, each once (``numbered``).

    Raises:
        UsageError: there is none, or one is named twice.

    Example:
        >>> PrefixSpace(["load", "train", "evaluate"]).trying(Probe(at="train")).command
        ('load', 'train')
    """

    kind: Kind = "range"
    varied: tuple[Varied, ...] = ()

    def __init__(self, names: Sequence[str]) -> None:
        if not names:
            raise UsageError("there is no function.", "Give a list of functions.")
        self._names = tuple(names)
        self.space = RangeSpace(FUNCTION, (NONE, *names))

    def trying(self, probe: Probe) -> Trying:
        """What a probe runs: the names of the functions that are called."""
        return Trying(self._names[: self.space.values.index(probe.at or NONE)])

    def minimal(self, _causes: Sequence[str]) -> list[dict[str, str]]:
        """Empty: a value is searched."""
        return []

    def typed(self, _trying: Trying, _options: Sequence[str] = ()) -> str:
        """Empty: no command line runs functions of a notebook."""
        return ""


class RanksSpace:
    """How many ranks run functions: one, two, and so on to all.

    Args:
        names: of the functions.
        size: number of ranks, with which it fails.

    Raises:
        UsageError: there is only one.

    Example:
        >>> RanksSpace(["train"], 4).trying(Probe(at=3)).own
        {'-n': '3'}
    """

    kind: Kind = "range"
    varied: tuple[Varied, ...] = ()

    def __init__(self, names: Sequence[str], size: int) -> None:
        self._names = tuple(names)
        self.space = RangeSpace("-n", ranks_to_search(size))

    def trying(self, probe: Probe) -> Trying:
        """What a probe runs: the functions, on so many ranks."""
        return Trying(self._names, own={"-n": str(probe.at)})

    def minimal(self, _causes: Sequence[str]) -> list[dict[str, str]]:
        """Empty: a value is searched."""
        return []

    def typed(self, _trying: Trying, _options: Sequence[str] = ()) -> str:
        """Empty: no command line runs functions of a notebook."""
        return ""


def ranks_to_search(size: int | None) -> range:
    """From one to so many.

    Raises:
        UsageError: that is not known, or there is only one.
    """
    if size is None:
        raise UsageError("the command does not say how many ranks it starts.", "Write --range 'NAME=1..N'.")
    if size < 2:
        raise UsageError("there is no smaller world than one rank.", "Start from a number of ranks that fails.")
    return range(1, size + 1)


def numbered(names: Sequence[str]) -> list[str]:
    """Names that tell apart what is called several times.

    Example:
        >>> numbered(["load", "step", "step"])
        ['load', 'step', 'step #2']
    """
    return [name if (n := names[:place].count(name)) == 0 else f"{name} #{n + 1}" for place, name in enumerate(names)]
