"""What of a program is varied, and what one probe of it runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


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

    def typed(self, options: Sequence[str] = ()) -> str:
        """As a command line that anyone can type.

        Args:
            options: of ``ddpnb run``, with ``--`` at the end before a launch command.
        """
        unset = [f"-u {name}" for name, value in self.environment.items() if value is None]
        given = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items() if value is not None]
        before = ["env", *unset, *given] if unset else given
        return " ".join([*before, "ddpnb", "run", shlex.join([*options, *self.command])])


@dataclass(frozen=True, slots=True)
class Varied:
    """Something of a command that takes one of two values; None: it is not there.

    ``kind``: ``given`` for an option that stays as the command has it, or is left out; ``option`` for one whose value is
    replaced; ``variable`` of the environment; ``own`` for an option of ddpnb. ``words``: that its value takes at most.
    """

    kind: str
    name: str
    failing: str | None
    harmless: str | None
    words: int = 1
