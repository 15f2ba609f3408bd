"""The panel of a rank: what is chosen in it, and what it shows of a Recording or of live ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.view import Action
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import rank_panel, variables
from ddpnb.render.margin import named
from ddpnb.render.rank_panel import Column, Controls
from ddpnb.render.variables import Inside
from ddpnb.render.views import board as boards
from ddpnb.render.views import frame_variables
from ddpnb.render.views.board import Tile
from ddpnb.render.views.frame_variables import SideBySide

_MOST_OPEN = 16  # variables that are open at a time
_WHOM = ("rank", "shown", "all")
_NOTHING = Recording(0, {})


class RankPanel(Fragment):
    """A debugger's panel for one rank, or for two side by side; empty until a rank is chosen.

    Args:
        recording: what to show, without live ranks.
        diagnosis: of it.
        on_action: takes what is done in the panel; ``take()`` does what concerns the panel alone.
        controls: of live ranks, as they are now.
    """

    def __init__(
        self,
        recording: Recording | None = None,
        diagnosis: Diagnosis | None = None,
        on_action: Action | None = None,
        controls: Callable[[], Controls] | None = None,
    ) -> None:
        super().__init__(label="rank panel", on_action=on_action)
        self.chosen: int | None = None
        self.beside: int | None = None
        self.whom = "rank"  # that the buttons act on
        self.recording = _NOTHING  # with stacks and variables
        self.opened: dict[str, Inside | None] = {}  # variables by path, and what is inside; None: not read yet
        self.values: SideBySide | None = None
        self._controls = controls
        self._tiles: Sequence[Tile] = ()
        self._now = _NOTHING  # with the last calls
        self.edited: tuple[str, int] = ("", 0)  # the line of whose hold the conditions are shown
        self._frame: dict[int, int] = {}  # that was chosen on a rank, counted from the innermost
        self._differing = False
        self._drawing = threading.RLock()  # pictures, answers and clicks come on different threads
        self._drawn: rank_panel.Panel | None = None
        if recording is not None:
            self.show_now(boards.tiles(recording, diagnosis.findings if diagnosis is not None else ()), recording)
            self.show_recording(recording)

    # -- what is shown

    @property
    def ranks(self) -> tuple[int, ...]:
        """The one or two ranks that are shown."""
        return tuple(rank for rank in (self.chosen, self.beside) if rank is not None) if self.chosen is not None else ()

    @property
    def frames(self) -> SideBySide | None:
        """The chosen frame of the chosen rank, and the same function on the others; else that in which most ranks are."""
        if self.chosen is None or not self.has_frames(self.chosen):
            return frame_variables.side_by_side(self.recording)
        return frame_variables.side_by_side(self.recording, self._frame.get(self.chosen, 0), self.chosen)

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the chosen frames."""
        sites = [self._column(rank).site for rank in self.ranks]
        return tuple(dict.fromkeys(site.file for site in sites if site is not None))

    def file_of(self, values: Mapping[str, str]) -> str:
        """The file that the page names, if its text is shown here; else an empty text."""
        return next((file for file in self.recording.sources if named(file) == values.get("file")), "")

    def has_frames(self, rank: int) -> bool:
        """Whether the rank was in a function of the user's."""
        record = self.recording.ranks.get(rank)
        stack = record.shown_stack if record is not None else None
        return stack is not None and bool(stack.user_frames)

    def tile_of(self, rank: int) -> Tile | None:
        """What a rank does now."""
        return next((tile for tile in self._tiles if rank in tile.ranks), None)

    def show_recording(self, recording: Recording) -> None:
        """Show this moment: stacks and variables. What was open stays open, once it has been read."""
        with self._drawing:
            if _stand(recording) != _stand(self.recording):
                self._frame.clear()
            self.recording = recording
            if self._now is _NOTHING:
                self._now = recording
            self.draw()

    def show_now(self, tiles: Sequence[Tile], recording: Recording) -> None:
        """Show what the ranks do now, and their last calls."""
        with self._drawing:
            self._tiles, self._now = tiles, recording
            self.draw()

    def show_values(self, inside: Mapping[str, Inside], watched: SideBySide | None) -> None:
        """Show what is inside the variables that are open, and the values of the watched expressions."""
        with self._drawing:
            self.opened = {path: inside.get(path, known) for path, known in self.opened.items()}
            self.values = watched
            self.draw()

    def draw(self) -> None:
        """Draw it again: the controls may have changed."""
        with self._drawing:
            if not self.ranks:
                self._drawn = None
                self.show("", partial(_unopened, self.recording))
                return
            panel = self._panel()
            if panel != self._drawn:
                self._drawn = panel
                self.show(rank_panel.html(panel), partial(rank_panel.text, panel))

    def _panel(self) -> rank_panel.Panel:
        controls = self._controls() if self._controls is not None else None
        return rank_panel.Panel(
            tuple(map(self._column, self.ranks)),
            tuple(sorted(self._now.ranks)),
            _lines(self.recording),
            replace(self._now, ranks={rank: self._now.ranks[rank] for rank in self.ranks if rank in self._now.ranks}),
            self.frames,
            {path: inside for path, inside in self.opened.items() if inside is not None},
            self._differing,
            self.values,
            controls,
            self.edited,
        )

    def _column(self, rank: int) -> Column:
        record = self.recording.ranks.get(rank)
        column = Column(rank, self.tile_of(rank), record.shown_stack if record is not None else None)
        column = replace(column, frame=self._frame.get(rank, 0))
        return (
            replace(column, text=self.recording.sources.get(column.site.file, ""))
            if column.site is not None
            else column
        )

    # -- what somebody does

    def choose(self, rank: int | None) -> None:
        """Show this rank; if it is shown already, or None, close the panel."""
        with self._drawing:
            self.chosen = None if rank == self.chosen else rank
            self.beside = self.beside if self.chosen is not None and self.beside != self.chosen else None
            self.opened.clear()
            self.whom = "rank"
            self.draw()

    def take(self, action: str, values: Mapping[str, str]) -> bool:
        """Do what concerns the panel alone; False if this is something else."""
        does = {
            "rank": lambda: self.choose(_number(values, "rank", self._now)),
            "rank close": lambda: self.choose(None),
            "rank beside": lambda: self._put_beside(_number(values, "beside", self._now)),
            "rank differing": lambda: self._show_differing(only="differing" in values),
            "rank whom": lambda: self._act_on(values.get("whom", "")),
            "frame": lambda: self._choose_frame(values),
            "open": lambda: self._toggle(values.get("path", "")),
            "arm edit": lambda: self._edit(self.file_of(values), values.get("line", "")),
            "arm close": lambda: self._edit("", ""),
        }.get(action)
        if does is None:
            return False
        with self._drawing:
            does()
            self.draw()
        return True

    def _put_beside(self, rank: int | None) -> None:
        self.beside = rank if rank != self.chosen else None
        self.whom = "rank" if self.beside is None and self.whom == "shown" else self.whom

    def _show_differing(self, *, only: bool) -> None:
        self._differing = only

    def _act_on(self, whom: str) -> None:
        self.whom = whom if whom in _WHOM else self.whom

    def _choose_frame(self, values: Mapping[str, str]) -> None:
        rank, number = _number(values, "rank", self.recording), values.get("number", "")
        if rank is not None and number.isdecimal() and len(number) < 4:
            self._frame[rank] = int(number)
            if rank == self.chosen:
                self.opened.clear()

    def _edit(self, file: str, line: str) -> None:
        """Show the conditions of the hold of this line, or no longer."""
        asked = (file, int(line)) if file and line.isdecimal() and len(line) < 10 else ("", 0)
        self.edited = ("", 0) if asked == self.edited else asked

    def _toggle(self, path: str) -> None:
        if path in self.opened:
            for one in [one for one in self.opened if one == path or one.startswith((f"{path}.", f"{path}["))]:
                del self.opened[one]
        elif path and len(self.opened) < _MOST_OPEN:
            self.opened[path] = None


def _number(values: Mapping[str, str], name: str, recording: Recording) -> int | None:
    """A rank that the page names, if there is one."""
    given = values.get(name, "")
    rank = int(given) if given.isdecimal() and len(given) < 10 else -1
    return rank if rank in recording.ranks else None


def _stand(recording: Recording) -> dict[int, object]:
    """In which functions the ranks are."""
    stacks = {rank: record.shown_stack for rank, record in recording.ranks.items()}
    return {r: [(f.file, f.function) for f in stack.user_frames] for r, stack in stacks.items() if stack is not None}


def _lines(recording: Recording) -> dict[tuple[str, int], tuple[int, ...]]:
    """The innermost line of each rank in each file."""
    found: dict[tuple[str, int], list[int]] = {}
    for rank, record in sorted(recording.ranks.items()):
        stack = record.shown_stack
        inmost = {frame.file: frame.line for frame in stack.user_frames} if stack is not None else {}
        for place in inmost.items():
            found.setdefault(place, []).append(rank)
    return {place: tuple(ranks) for place, ranks in found.items()}


def _unopened(recording: Recording) -> str:
    return variables.summary(frame_variables.side_by_side(recording))
