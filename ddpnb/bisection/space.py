"""What is searched: components that are on or off, or values in order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ddpnb.errors import UsageError

Value = int | str
Kind = Literal["set", "range", "git"]
AS_GIVEN = "as given"  # a place that is not known yet
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Component:
    """Something that is on or off.

    Args:
        name: as the user knows it, such as ``--num-workers``.
        value: what it is when on, where there is something to say.
        requires: names of components that must be on for this one to run.
        instead_of: name of one that it requires and takes the place of: a smaller value of the same option.
    """

    name: str
    value: str = ""
    requires: tuple[str, ...] = ()
    instead_of: str = ""

    def to_json(self) -> dict[str, Any]:
        instead = {"instead_of": self.instead_of} if self.instead_of else {}
        return {"name": self.name, "value": self.value, "requires": list(self.requires), **instead}

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

    kind: Literal["set"] = "set"

    def __init__(self, components: Sequence[Component], rungs: Sequence[tuple[str, Sequence[str]]] = ()) -> None:
        self.rungs = tuple((title, tuple(added)) for title, added in rungs)
        names = [component.name for component in components]
        if not names:
            raise UsageError("there is nothing to vary.", "Name at least one component.")
        if twice := {name for name in names if names.count(name) > 1}:
            raise UsageError(f"{', '.join(sorted(twice))} is named twice.", "Name each component once.")
        self.components = _in_order(components)
        self.names = tuple(component.name for component in self.components)
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
        """These components for people: of several values of an option the last one."""
        given = [component for component in self.components if component.name in names]
        replaced = {component.instead_of for component in given}
        return [component for component in given if component.name not in replaced]

    def cumulative(self) -> list[tuple[str, Probe]]:
        """Each rung with everything below it on; the last one is the start."""
        on: list[str] = []
        found: list[tuple[str, Probe]] = []
        for title, added in self.rungs:
            on += added
            found.append((title, self.probe(on)))
        return found

    @property
    def dependent(self) -> bool:
        """Whether a component requires another."""
        return any(component.requires for component in self.components)

    @property
    def start(self) -> Probe:
        """The configuration that fails."""
        return Probe(self.names)

    @property
    def harmless(self) -> Probe:
        """The configuration that should not fail."""
        return Probe()

    def within(self, probe: Probe, other: Probe) -> bool:
        """Whether nothing is on in a configuration that is not on in another one."""
        return set(probe.on) <= set(other.on)

    def __contains__(self, probe: Probe) -> bool:
        return probe.at is None and self._needs.keys() >= set(probe.on) and self.probe(probe.on) == probe

    def to_json(self) -> dict[str, Any]:
        rungs = {"rungs": [[title, list(added)] for title, added in self.rungs]} if self.rungs else {}
        return {"kind": self.kind, "components": [component.to_json() for component in self.components], **rungs}


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

    def __init__(self, name: str, values: Sequence[Value], kind: Literal["range", "git"] = "range") -> None:
        if len(values) > _MOST:
            raise UsageError(f"{name}: more than {_MOST:,} values.", "Search a shorter range first.")
        if len(values) < 2:
            raise UsageError(f"{name}: a range needs a value that works and one that fails.", "Give two or more.")
        self.name, self.values = name, tuple(values)
        self.kind: Literal["range", "git"] = kind
        self._place = {value: place for place, value in enumerate(self.values)}
        if len(self._place) < len(self.values):
            raise UsageError(f"{name}: a value stands twice.", "Give each value once.")

    def probe(self, place: int) -> Probe:
        """The configuration with the value at this place."""
        return Probe(at=self.values[place])

    @property
    def start(self) -> Probe:
        """The configuration that fails."""
        return self.probe(-1)

    @property
    def harmless(self) -> Probe:
        """The configuration that should not fail."""
        return self.probe(0)

    def within(self, probe: Probe, other: Probe) -> bool:
        """Whether a value does not come after another one."""
        return (
            self._place[probe.at] <= self._place[other.at] if probe.at is not None and other.at is not None else False
        )

    def __contains__(self, probe: Probe) -> bool:
        return probe.at in self._place and not probe.on

    def to_json(self) -> dict[str, Any]:
        values: Any = list(self.values)
        low, high = self.values[0], self.values[-1]
        if isinstance(low, int) and isinstance(high, int) and self.values == tuple(range(low, high + 1)):
            values = {"low": low, "high": high}
        return {"kind": self.kind, "name": self.name, "values": values}


Space = SetSpace | RangeSpace


def space_from_json(data: Any) -> Space:
    """The space that ``to_json()`` has described.

    Raises:
        KeyError, TypeError, ValueError: it is not one.
    """
    if data["kind"] == "set":
        components = [
            Component(
                str(one["name"]),
                str(one["value"]),
                tuple(map(str, one["requires"])),
                str(one.get("instead_of", "")),
            )
            for one in data["components"]
        ]
        return SetSpace(components, [(str(title), tuple(map(str, added))) for title, added in data.get("rungs", ())])
    values = data["values"]
    if isinstance(values, dict):
        low, high = int(values["low"]), int(values["high"])  # type: ignore[reportUnknownArgumentType]
        values = range(low, min(high, low + _MOST + 1) + 1)
    if data["kind"] not in ("range", "git"):
        raise ValueError(f"unknown kind {data['kind']!r}")
    return RangeSpace(str(data["name"]), [one if isinstance(one, int) else str(one) for one in values], data["kind"])


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
