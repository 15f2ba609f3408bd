"""The values that the panel of a rank reads when the ranks stand: what is open, and what is watched."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ddpnb.errors import DdpnbError, UsageError
from ddpnb.notebook.part import Context
from ddpnb.notebook.widgets.rank_panel import RankPanel
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.holds import check_expression
from ddpnb.recording.rank_state import RankState
from ddpnb.render.tensors import described
from ddpnb.render.variables import Inside
from ddpnb.render.views import frame_variables
from ddpnb.render.views.frame_variables import Row, SideBySide

_CAN_BE_ASKED = (RankState.HELD, RankState.WAITING, RankState.BLOCKED, RankState.IDLE)
_MOST, _LONGEST = 20, 400  # watched expressions, and characters of one
_TIMEOUT_S = 1.0  # of an expression: it is read again at each stop


class RankValues:
    """Reads values for a panel, on threads of its own.

    ``names``: of tensors that can be watched.
    """

    def __init__(self, context: Context, panel: RankPanel) -> None:
        self._context, self._panel = context, panel
        self._expressions = context.world._watched  # also of dashboards that were shown before
        self.names: tuple[str, ...] = ()
        self._due = False  # values are to be read
        self._reading = threading.Lock()

    def watch(self, expression: str) -> None:
        """Show the value of this expression whenever the ranks stand.

        Raises:
            UsageError: it is no expression, or too many are watched.
        """
        if not expression:
            raise UsageError("no expression given.", "Enter one, such as loss.item().")
        if len(expression) > _LONGEST or len(self._expressions) >= _MOST:
            raise UsageError(f"at most {_MOST} expressions of {_LONGEST} characters are watched.", "Remove one.")
        if expression not in self.names:
            check_expression(expression)
        if expression not in self._expressions:
            self._expressions.append(expression)
        self.due()

    def unwatch(self, expression: str) -> None:
        """Watch it no longer."""
        if expression in self._expressions:
            self._expressions.remove(expression)
        self.due()

    def due(self) -> None:
        """Read again what is open and what is watched, beside what else happens."""
        self._due = True
        if self._panel.chosen is not None:
            self._context.tasks.start("reading values", self._read_values, quiet=True, again=True)

    def _read_values(self) -> None:
        with self._reading:
            if not self._due:  # another thread has read them meanwhile
                return
            self._due = False
            frames, recording = self._panel.frames, self._panel.recording
            places = frame_variables.places(recording, frames) if frames is not None else {}
            self.names = self._tensor_names(places)
            watched = self._watched(frames, places)
            self._panel.show_values({}, watched)
            for path in list(self._panel.opened):
                self._panel.show_values({path: self._inside(path, frames, places)}, watched)

    def _tensor_names(self, places: Mapping[int, int]) -> tuple[str, ...]:
        try:
            return self._context.world.tensor_names(places.get(self._first, 0))
        except DdpnbError:  # nobody has asked for them
            return ()

    @property
    def _first(self) -> int:
        return self._panel.chosen if self._panel.chosen is not None else 0

    def _inside(self, path: str, frames: SideBySide | None, places: Mapping[int, int]) -> Inside:
        """What is inside a variable: a tensor in numbers, or its parts."""
        try:
            if self._is_tensor(path, frames):
                place = places.get(self._first, 0)
                ranks = [rank for rank, one in places.items() if one == place and self._stands(rank)]
                return self._context.world.tensor(path, place, ranks=ranks or None, timeout=_TIMEOUT_S)
            if frames is None:
                return "No rank is in this function."
            return self._context.world._open(frames, path)
        except DdpnbError as error:
            return str(error)

    def _is_tensor(self, path: str, frames: SideBySide | None) -> bool:
        tables = [(frames, ""), (self._panel.values, "")]
        tables += [(one, name) for name, one in self._panel.opened.items() if isinstance(one, SideBySide)]
        return any(
            f"{name}{row.name}" == path and row.is_tensor
            for table, name in tables
            if table is not None
            for row in table.rows
        )

    def _watched(self, frames: SideBySide | None, places: Mapping[int, int]) -> SideBySide | None:
        """The values of the expressions, in the chosen function on each rank that is in it and stands."""
        if not self._expressions:
            return None
        known = dict(frames.sites) if frames is not None else {}
        asked = {rank: places.get(rank, 0) for rank in (known or range(self._context.world.size)) if self._stands(rank)}
        rows = tuple(Row(one, self._evaluated(one, asked), len(asked)) for one in self._expressions)
        sites = {rank: known.get(rank, NO_SITE) for rank in (asked or self._panel.ranks)}
        return SideBySide(frames.function if frames is not None else "", sites, rows, {})

    def _stands(self, rank: int) -> bool:
        tile = self._panel.tile_of(rank)
        return self._context.shown is None and tile is not None and tile.state in _CAN_BE_ASKED

    def _evaluated(self, expression: str, asked: Mapping[int, int]) -> dict[int, str]:
        """Rank -> text. A name that only a followed model knows is that of its tensor."""
        values: dict[int, str] = {}
        for place in sorted(set(asked.values())):
            ranks = [rank for rank, one in asked.items() if one == place]
            try:
                found = self._context.world.evaluate(expression, ranks=ranks, frame=place, timeout=_TIMEOUT_S)
            except DdpnbError as error:
                values |= dict.fromkeys(ranks, str(error))
                continue
            if expression in self.names and all(one.error for one in found.values()):
                values |= self._as_tensor(expression, ranks, place)
            else:
                values |= {rank: one.error or one.text for rank, one in found.items()}
        return values

    def _as_tensor(self, name: str, ranks: list[int], place: int) -> dict[int, str]:
        try:
            found = self._context.world.tensor(name, place, ranks=ranks, timeout=_TIMEOUT_S)
        except DdpnbError as error:
            return dict.fromkeys(ranks, str(error))
        return {rank: described(one) for rank, one in found.ranks.items()}
