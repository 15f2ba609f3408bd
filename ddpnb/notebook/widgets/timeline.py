"""The time line: one lane per rank with its calls; live, or of a Recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import traitlets

from ddpnb.notebook.widgets import places
from ddpnb.notebook.widgets.view import VIEWER, Action, View, module, styles
from ddpnb.recording.calls import Call
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.marks import Mark
from ddpnb.recording.recording import Recording
from ddpnb.render.views import lanes as analysis
from ddpnb.render.views.lane import Columns, Lane, ShownRun
from ddpnb.render.views.lanes import Lanes
from ddpnb.render.views.marks import representatives
from ddpnb.texts import one_line, printable

_LONGEST = 400  # characters of a text
_NAMED = 3  # calls of a rank that the text names
_WANT = "want"  # what a page sends that has missed something


class Timeline(View):
    """Swim lanes of the calls of all ranks.

    The page shows what is chosen beside it; a link to the code opens in JupyterLab, or shows the text. ``sources`` are the texts
    of files as the ranks ran them; other files are read from the disk.

    ``columns`` holds all calls, for pages that are opened later; new calls are sent as messages. ``version``
    tells a page whether it missed a message.
    """

    _esm = module(
        "connection.js",
        "hearing.js",
        "keys.js",
        VIEWER,
        "places.js",
        "axis.js",
        "columns.js",
        "lanes.js",
        "chosen.js",
        "painting.js",
        "pixels.js",
        "overlays.js",
        "elements.js",
        "timeline.js",
    )
    _css = styles()
    columns = traitlets.Dict().tag(sync=True)
    version = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        recording: Recording | None = None,
        diagnosis: Diagnosis | None = None,
        on_action: Action | None = None,
        **traits: Any,
    ) -> None:
        self._lanes = Lanes() if recording is None else analysis.lanes(recording, diagnosis)
        self.sources: Mapping[str, str] = {}
        self._sent: dict[str, Any] = {}  # rows and runs
        super().__init__(on_action, **traits)

    @property
    def lanes(self) -> Lanes:
        """The lanes that are shown."""
        return self._lanes

    def show(self, recording: Recording, diagnosis: Diagnosis | None = None) -> None:
        """Show this Recording instead of the current content."""
        self._lanes = analysis.lanes(recording, diagnosis)
        self._send_all()

    def begin(self, recording: Recording, diagnosis: Diagnosis | None = None, name: str = "", at_ns: int = 0) -> None:
        """Another run begins, after those that are shown.

        Args:
            recording: of its first moment; its calls are not added.
            diagnosis: of the recording.
            name: of the run, as it is shown.
            at_ns: when it began, on the clock of the ranks; 0: with its first call.
        """
        lanes = self._lanes
        lanes.of = max(lanes.of, recording.world_size, len(recording.ranks))
        lanes.begin(representatives(recording, diagnosis, analysis.MOST), name, at_ns)
        self._send_all()

    def lose(self) -> None:
        """Calls of the current run were lost: show it from those on that come next."""
        self._lanes.lose()

    def add(
        self,
        calls: Mapping[int, Iterable[Call]],
        recording: Recording | None = None,
        diagnosis: Diagnosis | None = None,
        now_ns: int = 0,
        marks: Mapping[int, Iterable[Mark]] | None = None,
    ) -> None:
        """Show more calls.

        Args:
            calls: new and changed calls of each rank.
            recording: the state of the ranks; its calls are not added.
            diagnosis: of the recording, for the marks.
            now_ns: the current time on the clock of the ranks; by default that of the last event.
            marks: new ones of each rank, from which its holds are known.
        """
        for rank, made in calls.items():
            self._lanes.add(rank, made)
        for rank, made in (marks or {}).items():
            self._lanes.hold(rank, made)
        if recording is not None:
            self._lanes.mark(recording, diagnosis)
        self._lanes.tick(now_ns)
        news = self._lanes.news()
        if news.whole:
            self._send_all()
            return
        before = self._sent
        if self._rows() == before and not (len(news.events) or len(news.places) or news.holds):
            return  # the page knows that time passes
        self.version += 1
        self.send({"kind": "news", "head": self._head(news)}, [_events(news), _places(news)])

    @property
    def text(self) -> str:
        """The last calls of every rank."""
        lanes = self._lanes
        if not lanes.count:
            return "no collective recorded"
        lines = [self._line(lane) for lane in lanes.lanes]
        if lanes.of > len(lines):
            lines.append(f"({len(lines)} of {lanes.of} ranks)")
        return "\n".join(lines)

    def _line(self, lane: Lane) -> str:
        last = [span.title for span in self._lanes.spans(lane.rank, _NAMED + 1)]
        doing = lane.doing or self._lanes.doing(lane.rank)
        if last and doing.startswith(last[-1]):
            last.pop()
        if lane.mark is not None:
            doing = lane.mark.words if lane.mark.words.startswith(doing) else f"{doing} ({lane.mark.words})"
        return printable(f"rank {lane.rank}: {', '.join([*last[-_NAMED:], *([doing] if doing else [])])}")

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """The state for a page; the columns are encoded only when requested."""
        state = super().get_state(key, drop_defaults)
        if "columns" in state:
            columns = self._lanes.columns()
            state["columns"] = {"head": self._head(columns), "events": _events(columns), "places": _places(columns)}
        return state

    def _send_all(self) -> None:
        self.version += 1
        self.send_state("columns")

    def _rows(self) -> dict[str, Any]:
        """What is known of lanes and runs besides the calls."""
        lanes = self._lanes
        rows = [_row(lane, lanes.doing(lane.rank)) for lane in lanes.lanes]
        self._sent = {"rows": rows, "runs": [_run(run) for run in lanes.runs]}
        return self._sent

    def _head(self, columns: Columns) -> dict[str, Any]:
        return {
            "version": self.version,
            "whole": columns.whole,
            "count": len(columns.events),
            "places": len(columns.places),
            "texts": [one_line(text, _LONGEST) for text in columns.texts],
            "kinds": [list(kind) for kind in columns.kinds],
            "holds": [[lane, begin, end if np.isfinite(end) else None] for lane, (begin, end) in columns.holds],
            **self._rows(),
            **({"past": [[_row(lane, "") for lane in run] for run in self._lanes.past]} if columns.whole else {}),
            "now": self._lanes.now,
            "of": self._lanes.of,
        }

    def _take(self, widget: object, content: Any, buffers: object) -> None:
        action = content.get("action") if isinstance(content, Mapping) else None
        if action == _WANT:
            self.send_state("columns")
        elif action == "place":
            places.go(self, content.get("values"), self.sources, self._lanes.names)
        else:
            super()._take(widget, content, buffers)


def _row(lane: Lane, doing: str) -> dict[str, Any]:
    mark = lane.mark
    words = one_line(mark.words, _LONGEST) if mark is not None else ""
    return {
        "rank": lane.rank,
        "begin": lane.begin,
        "until": lane.until if np.isfinite(lane.until) else None,
        "ended": lane.ended if np.isfinite(lane.ended) else None,
        "failed": lane.failed,
        "state": lane.state,
        "doing": one_line(lane.doing or doing, _LONGEST),
        "since": lane.since,
        "stands": lane.stands_in >= 0,
        "mark": {"kind": mark.kind, "words": words, "number": mark.number} if mark is not None else None,
    }


def _run(run: ShownRun) -> dict[str, Any]:
    return {
        "number": run.number,
        "name": one_line(run.name, _LONGEST),
        "begin": run.begin if np.isfinite(run.begin) else None,
        "end": run.end if np.isfinite(run.end) else None,
    }


def _events(columns: Columns) -> bytes:
    """All columns, one after the other, as ``columns.js`` reads them."""
    events = columns.events
    return b"".join(np.ascontiguousarray(events[name]).tobytes() for name in events.dtype.names or ())


def _places(columns: Columns) -> bytes:
    return columns.met.astype("<f8").tobytes() + columns.places.astype("<u4").tobytes()
