"""The programs of the matrix, and what each must give, as its own first lines say."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
_FIELD = re.compile(r"# (command|plain|outcome|expect|culprits|sides|remedy): (.*?)\s*$")


@dataclass(frozen=True)
class Program:
    """One program.

    ``outcome`` may be one of two, where it depends on which of two processes ends first. ``plain`` is what its command does without ddpnb: its exit status, or ``hang``. Lines that the finding must name
    end with ``# <- culprit``.
    """

    path: Path
    command: str
    plain: str = "0"
    outcome: str = "ok"
    expect: str = ""
    culprits: tuple[int, ...] = ()
    sides: tuple[tuple[int, ...], ...] = ()
    remedy: str = ""

    @property
    def name(self) -> str:
        return self.path.parent.name

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.command)

    @property
    def needs_port(self) -> bool:
        """Whether the port is the user's to choose: torchrun and Lightning choose one themselves."""
        return "MASTER_PORT" in self.path.read_text() or "RANK=" in self.command

    @property
    def lines(self) -> set[int]:
        return {n for n, line in enumerate(self.path.read_text().splitlines(), 1) if line.endswith("# <- culprit")}


def read(path: Path) -> Program:
    fields = dict(match.groups() for line in path.read_text().splitlines() if (match := _FIELD.match(line)))
    ranks = [tuple(map(int, re.findall(r"\d+", side))) for side in fields.pop("sides", "").split("|")]
    culprits = tuple(map(int, re.findall(r"\d+", fields.pop("culprits", ""))))
    return Program(path, culprits=culprits, sides=tuple(side for side in ranks if side), **fields)


def programs(name: str) -> list[Program]:
    """All ``healthy.py``, or all ``broken.py``, by their folders."""
    return [read(path) for path in sorted(PROGRAMS.glob(f"*/{name}.py"))]
