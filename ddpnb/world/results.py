"""Results of inspecting live ranks: HTML in a notebook, plain text in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ddpnb.recording.rank_state import RankState
from ddpnb.recording.verbs import Evaluated
from ddpnb.render import variables
from ddpnb.render.document import Block, Paragraph, Table
from ddpnb.render.shown import Shown
from ddpnb.render.status import status
from ddpnb.render.views.frame_variables import Row, SideBySide
from ddpnb.render.views.status import RankStatus
from ddpnb.texts import printable


@dataclass(frozen=True, slots=True, repr=False)
class WorldStatus(Shown):
    """What every rank is doing."""

    ranks: tuple[RankStatus, ...]
    _label: ClassVar[str] = "state of the ranks"

    @property
    def held(self) -> tuple[int, ...]:
        """The ranks that are held before a collective."""
        return tuple(one.rank for one in self.ranks if one.state is RankState.HELD)

    def __getitem__(self, rank: int) -> RankStatus:
        return next(one for one in self.ranks if one.rank == rank)

    def _document(self) -> list[Block]:
        return [status(self.ranks)]


@dataclass(frozen=True, slots=True, repr=False)
class FrameDiff(Shown):
    """The variables of one function on all ranks, side by side; ``differing``: those that differ."""

    found: SideBySide | None
    _label: ClassVar[str] = "variables side by side"

    @property
    def differing(self) -> dict[str, dict[int, str]]:
        """Variable -> rank -> its value as text, for variables that differ between ranks."""
        return {row.name: dict(row.values) for row in self._rows if row.differs}

    @property
    def _rows(self) -> tuple[Row, ...]:
        return self.found.rows if self.found is not None else ()

    def _document(self) -> list[Block]:
        notes = (Paragraph(note, kind="faint") for note in self._how_to_open)
        return [*variables.document(self.found), *notes]

    @property
    def _how_to_open(self) -> list[str]:
        """How to see what is inside the first variable that can be opened."""
        row = next((row for row in self._rows if row.opens), None)
        if self.found is None or row is None:
            return []
        path = printable(self.found.path + row.name)
        return [f"What is inside {path}: %ddp_diff {path}, or world.diff(name={path!r})."]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An expression on one rank: its text, its value if that is a plain Python object, or the error."""

    text: str = ""
    value: Any = None
    error: str = ""
    where: str = ""

    def __str__(self) -> str:
        return printable(f"({self.error})" if self.error else self.text)


class Evaluations(Shown, dict[int, Evaluation]):
    """An expression on several ranks: rank -> ``Evaluation``."""

    expression: str = ""
    _label = "values by rank"

    @classmethod
    def of(cls, expression: str, ranks: Iterable[int], answers: Mapping[int, Evaluated]) -> Evaluations:
        """The answers of the ranks; a missing answer becomes an error."""
        found = cls()
        found.expression = expression
        for rank in ranks:
            told = answers.get(rank, Evaluated(error="the rank is unresponsive"))
            found[rank] = Evaluation(told.text, told.value, told.error, told.where)
        return found

    @property
    def values_by_rank(self) -> dict[int, Any]:
        """rank -> the value, or its text; ranks with an error are left out."""
        return {r: one.text if one.value is None else one.value for r, one in self.items() if not one.error}

    def _document(self) -> list[Block]:
        return [Table(self._label, ("rank", self.expression), [(str(rank), str(one)) for rank, one in self.items()])]

    def __str__(self) -> str:
        return "\n".join(f"rank {rank}: {one}" for rank, one in self.items())

    __repr__ = __str__
