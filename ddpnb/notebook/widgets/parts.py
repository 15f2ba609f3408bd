"""Widgets that show a Recording: findings, ranks, source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ddpnb.errors import UsageError
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.view import Action
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.recording import Recording
from ddpnb.render import board, card, markup, source_lines
from ddpnb.render.document import Drawn
from ddpnb.render.views import board as boards
from ddpnb.render.views.source_lines import SourceView, source_view


class Card(Fragment):
    """The diagnosis: what happened, on which ranks, where, the evidence, and the fix."""

    def __init__(
        self, diagnosis: Diagnosis | None = None, on_action: Action | None = None, *, headline: bool = True
    ) -> None:
        super().__init__(label="diagnosis", on_action=on_action)
        self._headline = headline
        self._drawing = threading.RLock()  # what is below the findings changes on other threads than the findings
        self.diagnosis: Diagnosis | None = None
        self._of = ""
        #: gives what stands at the end of the card of a finding, as HTML
        self.below: Callable[[int, Finding], str] = lambda *_: ""
        self.show_diagnosis(diagnosis)

    def redraw(self) -> None:
        """What stands below the findings has changed."""
        with self._drawing:
            self.show_diagnosis(self.diagnosis, self._of)

    def show_diagnosis(self, diagnosis: Diagnosis | None, of: str = "") -> None:
        """Show this diagnosis; ``of``: of what, as a heading, such as ``Last run: hang``."""
        with self._drawing:
            self.diagnosis, self._of = diagnosis, of
            if diagnosis is None or not (diagnosis.findings or diagnosis.settled):
                self.show("")
                return
            html = card.html(diagnosis, headline=self._headline, below=self.below)
            text = card.text(diagnosis)
            heading = f"<h2>{markup.text(of)}</h2>" if of and html else ""
            self.show(heading + html, f"{of}\n{text}" if of else text)


class Board(Fragment):
    """A tile per rank: what it does, since when, where, and its resource use. Ranks that do the same can share a tile."""

    def __init__(
        self, recording: Recording | None = None, diagnosis: Diagnosis | None = None, on_action: Action | None = None
    ) -> None:
        super().__init__(label="rank board", title="Ranks", on_action=on_action)
        self.chosen: int | None = None
        if recording is not None:
            self.show_recording(recording, diagnosis)

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None = None) -> None:
        self.show_tiles(boards.tiles(recording, diagnosis.findings if diagnosis is not None else ()), recording)

    def show_tiles(self, tiles: Sequence[boards.Tile], recording: Recording) -> None:
        """Show these tiles of the recording."""
        self.show(board.board(tiles, recording.host, self.chosen), partial(board.text, tiles))


class Source(Fragment):
    """A file with a column for each rank that ran its lines, and lists of files and parts of the run to choose from."""

    def __init__(self, recording: Recording | None = None, on_unfolded: Callable[[], None] | None = None) -> None:
        super().__init__(
            label="executed lines",
            title="Source: which ranks ran which line",
            folds=True,
            on_action=self._choose,
            on_unfolded=on_unfolded,
        )
        self._recording = recording
        self._view: SourceView | None = None
        self._file: str | None = None  # that was chosen
        self._window: int | str = -1
        self._whole = False
        if recording is not None:
            self.show_recording(recording)

    def show_recording(self, recording: Recording) -> None:
        """Show what is chosen of another recording; what it does not have is chosen no longer."""
        try:
            view = source_view(recording, self._file, self._window)
        except UsageError:
            self._file, self._window = None, -1
            view = source_view(recording)
        self._recording, self._view = recording, view
        form = source_lines.form(view, whole=self._whole) if view.file else ""
        self.show_blocks(Drawn(form), *source_lines.document(view, whole=self._whole))

    def _choose(self, action: str, values: Mapping[str, str]) -> None:
        if self._recording is None or self._view is None:
            return
        file = values.get("file", "")
        if file.isdecimal() and int(file) < len(self._view.files):
            self._file = self._view.files[int(file)]
        self._window = next((one for one, _ in self._view.windows if str(one) == values.get("window")), self._window)
        self._whole = {"more": True, "fewer": False}.get(action, self._whole)
        self.show_recording(self._recording)
