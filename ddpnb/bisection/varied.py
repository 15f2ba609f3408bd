"""What of a program is varied, and what one probe of it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ddpnb.bisection.space import Component


@dataclass(frozen=True, slots=True)
class Trying:
    """What one probe runs.

    ``command``: the script with its arguments, or a launch command. ``environment``: variables to set, None to remove.
    ``own``: values of ddpnb's own options ``-n`` and ``--backend``. ``commit``: to check out, None for the files as they
    are.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    own: Mapping[str, str] = field(default_factory=dict[str, str])
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class Varied:
    """Something of a command that takes one of two values, or of several in order; None: it is not there.

    ``kind``: ``given`` for an option that stays as the command has it, or is left out; ``option`` for one whose value is
    replaced; ``variable`` of the environment; ``own`` for an option of ddpnb. ``words``: that its value takes at most.
    ``between``: values between the harmless and the failing one.
    """

    kind: str
    name: str
    failing: str | None
    harmless: str | None
    words: int = 1
    between: tuple[str, ...] = ()

    @property
    def components(self) -> tuple[Component, ...]:
        """As components: on is the failing value; of several values, each requires those before it."""
        if not self.between:
            return (Component(self.name, self.failing or ""),)
        names = [f"{self.name}={value}" for value in (*self.between, self.failing or "")]
        first, *more = names
        return (
            Component(first),
            *(
                Component(name, requires=(before,), instead_of=before)
                for before, name in zip(names, more, strict=False)
            ),
        )

    def value(self, on: Collection[str]) -> str | None:
        """Its value with these components on."""
        values = (*self.between, self.failing)
        reached = [value for value, component in zip(values, self.components, strict=True) if component.name in on]
        return reached[-1] if reached else self.harmless

    def __str__(self) -> str:
        return "|".join(
            (str(self.components[0]), *(value for value in (*self.between[1:], self.failing or "") if self.between))
        )
