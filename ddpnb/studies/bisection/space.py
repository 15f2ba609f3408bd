"""What is searched: components that are on or off, or values in order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from ddpnb.errors import UsageError

Value = int | str
Kind = Literal["set", "range", "git"]
START, AS_GIVEN = "start", "as given"  # before the first place, and a place that is not known yet
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Component:
    """Something that is on or off.

    Args:
        name: as the user knows it, such as ``--num-workers``.
        value: what it is when on, where there is something to say.
        requires: names of components that must be on for this one to run.
    """

    name: str
    value: str = ""
    requires: tuple[str, ...] = ()

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "value": self.value}

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.value else self.name


@dataclass(frozen=True, slots=True)
class Probe:
    """One configuration to try. Two are equal if the same is on.

    ``on``: names of the components that are on. ``at``: the value, where values in order are searched.
    """

    on: tuple[str, ...] = ()
    at: Value | None = None

    def __str__(self) -> str:
        return str(self.at) if self.at is not None else ", ".join(self.on) or "everything off"


class SetSpace:
    """Components of which a smallest set that fails is searched. With all on it fails; with none it should not.

    Args:
        components: in order; one comes after those that it requires.
        rungs: titles and the names of the components that each adds. Where they are given, rung after rung is tried, and
            the first that fails is searched; else halves are tried.

    Raises:
        UsageError: there is none, a name stands twice, or one requires what is not there or itself.

    Example:
        >>> space = SetSpace([Component("workers"), Component("pinned", requires=("workers",))])
        >>> space.probe(["pinned"])
        Probe(on=('workers', 'pinned'), at=None)
    """

    kind: Kind = "set"

    def __init__(self, components: Sequence[Component], rungs: Sequence[tuple[str, Sequence[str]]] = ()) -> None:
        self.rungs = tuple((title, tuple(added)) for title, added in rungs)
        names = [component.name for component in components]
        if not names:
            raise UsageError("there is nothing to vary.", "Name at least one component.")
        if twice := {name for name in names if names.count(name) > 1}:
            raise UsageError(f"{', '.join(sorted(twice))} is named twice.", "Name each component once.")
        self.components = _in_order(components)
        self.candidates = self.names = tuple(component.name for component in self.components)
        self.start, self.harmless = Probe(self.names), Probe()
        self._needs = {component.name: component.requires for component in self.components}

    def probe(self, names: Sequence[str]) -> Probe:
        """The configuration with these on, and with what they require."""
        on: set[str] = set()
        left = list(names)
        while left:
            name = left.pop()
            if name not in on:
                on.add(name)
                left += self._needs[name]
        return Probe(tuple(name for name in self.names if name in on))

    def shown(self, names: Collection[str]) -> list[Component]:
        """The components of these names, in order."""
        return [one for one in self.components if one.name in names]

    def __str__(self) -> str:
        return ", ".join(map(str, self.components))

    def cumulative(self) -> list[tuple[str, Probe]]:
        """Each rung with everything below it on; the last one is the start."""
        on: list[str] = []
        return [(title, self.probe(on := [*on, *added])) for title, added in self.rungs]

    @property
    def dependent(self) -> bool:
        """Whether a component requires another."""
        return any(component.requires for component in self.components)

    def __contains__(self, probe: Probe) -> bool:
        return probe.at is None and self._needs.keys() >= set(probe.on) and self.probe(probe.on) == probe


class RangeSpace:
    """Values in order, of which the first that fails is searched. The last fails; the first should not.

    Args:
        name: what the values are of, such as ``--batch-size`` or ``commit``.
        values: at least two, each once.
        kind: ``range``, or ``git`` for commits.

    Raises:
        UsageError: there are fewer than two, or one stands twice.

    Example:
        >>> RangeSpace("--steps", range(8)).start
        Probe(on=(), at=7)
    """

    def __init__(self, name: str, values: Sequence[Value], kind: Kind = "range") -> None:
        if len(values) > _MOST:
            raise UsageError(f"{name}: more than {_MOST:,} values.", "Search a shorter range first.")
        if len(values) < 2:
            raise UsageError(f"{name}: a range needs a value that works and one that fails.", "Give two or more.")
        self.name, self.values, self.kind = name, tuple(values), kind
        self._known = frozenset(self.values)
        if len(self._known) < len(self.values):
            raise UsageError(f"{name}: a value stands twice.", "Give each value once.")
        self.candidates = self.values[1:]
        self.start, self.harmless = Probe(at=self.values[-1]), Probe(at=self.values[0])

    def __contains__(self, probe: Probe) -> bool:
        return probe.at in self._known and not probe.on


Space = SetSpace | RangeSpace


def _in_order(components: Sequence[Component]) -> tuple[Component, ...]:
    """Each after those that it requires; otherwise as they were."""
    by_name = {component.name: component for component in components}
    placed: dict[str, Component] = {}

    def place(component: Component, before: tuple[str, ...]) -> None:
        if component.name in before:
            raise UsageError(
                f"{component.name} requires itself, by way of {' -> '.join(before)}.", "Remove one of them."
            )
        for name in component.requires:
            if name not in by_name:
                raise UsageError(
                    f"{component.name} requires {name}, which is not there.", "Name it as a component too."
                )
            place(by_name[name], (*before, component.name))
        placed.setdefault(component.name, component)

    for component in components:
        place(component, ())
    return tuple(placed.values())
