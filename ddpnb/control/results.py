"""Results of inspecting live ranks: HTML in a notebook, plain text in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from ddpnb.model.rank_state import RankState
from ddpnb.recorder.verbs import Evaluated
from ddpnb.render import markup, variables
from ddpnb.render import status as shown
from ddpnb.render.terminal import table
from ddpnb.texts import printable
from ddpnb.views.frame_variables import Row, SideBySide
from ddpnb.views.status import RankStatus


@dataclass(frozen=True, slots=True)
class WorldStatus:
    """What every rank is doing."""

    ranks: tuple[RankStatus, ...]

    @property
    def held(self) -> tuple[int, ...]:
        """The ranks that are held before a collective."""
        return tuple(one.rank for one in self.ranks if one.state is RankState.HELD)

    def __getitem__(self, rank: int) -> RankStatus:
        return next(one for one in self.ranks if one.rank == rank)

    def __str__(self) -> str:
        return table(shown.status_rows(self.ranks))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return shown.html_table(shown.status_rows(self.ranks), "state of the ranks")


@dataclass(frozen=True, slots=True)
class FrameDiff:
    """The variables of one function on all ranks, side by side; ``differing``: those that differ."""

    found: SideBySide | None

    @property
    def differing(self) -> dict[str, dict[int, str]]:
        """Variable -> rank -> its value as text, for variables that differ between ranks."""
        return {row.name: dict(row.values) for row in self._rows if row.differs}

    @property
    def _rows(self) -> tuple[Row, ...]:
        return self.found.rows if self.found is not None else ()

    def __str__(self) -> str:
        return printable("\n".join([variables.text(self.found), *self._how_to_open]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f'<p class="faint">{escape(note)}</p>' for note in self._how_to_open)
        return markup.standalone(variables.variables(self.found) + notes, "variables side by side")

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


class Evaluations(dict[int, Evaluation]):
    """An expression on several ranks: rank -> ``Evaluation``."""

    expression: str = ""

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

    def __str__(self) -> str:
        rows = [["rank", self.expression], *([str(rank), str(one)] for rank, one in self.items())]
        return (
            table(rows)
            if all("\n" not in row[1] for row in rows)
            else "\n".join(f"rank {rank}: {one}" for rank, one in self.items())
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [["rank", self.expression], *([str(rank), str(one)] for rank, one in self.items())]
        return shown.html_table(rows, "values by rank")
