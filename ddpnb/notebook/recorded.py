"""The dashboard of a Recording: what was found, its re-enactment on live ranks, and a script that anyone can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import ipywidgets

from ddpnb.notebook import variable
from ddpnb.notebook.dashboard import Dashboard
from ddpnb.notebook.findings import FindingActions
from ddpnb.notebook.given_files import GivenFiles
from ddpnb.notebook.panel import Panel
from ddpnb.notebook.parts import PARTS
from ddpnb.notebook.run_actions import SCRIPT, RunActions
from ddpnb.notebook.tasks import Tasks
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.parts import Board, Card
from ddpnb.notebook.widgets.rank_panel import RankPanel
from ddpnb.notebook.widgets.timeline import Timeline
from ddpnb.recording.facts.before_the_end import while_waiting
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import card, still
from ddpnb.render.report import sources
from ddpnb.render.views import board as boards
from ddpnb.rules.diagnose import diagnose
from ddpnb.studies.reenactment import head as render
from ddpnb.studies.reenactment import reenact as reenacting
from ddpnb.studies.reenactment import words
from ddpnb.studies.reenactment.reenact import Reenactment

_MORE = "More files of this job? Drop them here,"


class Recorded(Panel):
    """The findings, the ranks, the time line, the variables and the stacks of one moment; of a report, what was read.

    What its buttons do, ``ddpnb.reenact()``, ``ddpnb.export()`` and ``Recording.save()`` do as well.

    Args:
        recording: to show.
        found: its diagnosis.
        files: those that it was read from; more of the same job can then be added.
    """

    def __init__(self, recording: Recording, found: Diagnosis, files: GivenFiles | None = None) -> None:
        self.recording, self.found = recording, found
        self.reenactment: Reenactment | None = None
        self.dashboard: Dashboard | None = None
        self._script = SCRIPT
        self._tasks = Tasks(self._refresh)
        self._run_actions = RunActions(self._tasks, lambda: (self.recording, self.found))
        self._head = Fragment(label="recording", on_action=self._act)
        self._result = Fragment(label="re-enactment", on_action=self._act)
        self.files = files if recording.report is not None else None
        if self.files is not None:
            self.files.use(_MORE, self._added)
        self._shown: Sequence[ipywidgets.Widget] = ()
        super().__init__(())
        self._show()

    # -- what is shown

    def _show(self) -> None:
        """Show another recording."""
        card, shown = parts(while_waiting(self.recording), self.found)
        FindingActions(card)
        self._shown = (card, *shown)
        self._tasks.draw()
        self._place()
        self.kept.changed()

    def state(self) -> tuple[str, str]:
        recording = while_waiting(self.recording)
        title = sources(recording) or f"Recording of {max(recording.world_size, len(recording.ranks))} ranks"
        tiles = boards.tiles(recording, self.found.findings)
        headline = f"{title.rstrip('.')}: {card.outcome_line(self.found)}"
        html = still.state(headline, diagnosis=self.found, tiles=tiles, recording=recording)
        return html, self.text

    def _place(self) -> None:
        """The widgets in their order: the re-enactment comes after the diagnosis that it is of."""
        live = self.dashboard.box.children if self.dashboard is not None else ()
        files = (self.files.drop,) if self.files is not None else ()
        self.box.children = (self._head, self._run_actions.report, *files, *self._shown, self._result, *live)

    def _refresh(self) -> None:
        """Update the buttons and the result of the last action; called by ``Tasks.draw``."""
        read, tasks = sources(self.recording), self._tasks
        live = self.reenactment is not None and not self.reenactment.world.closed
        html = render.head(
            read,
            script=self._script,
            actions=bool(self.found.findings),
            live=live,
            answer=tasks.answer(""),
        )
        self._head.show(html, "\n".join(one for one in (read, tasks.said) if one))

    def _compare(self, reenactment: Reenactment, *, known: bool) -> None:
        agreement = reenactment.agreement if known else None
        said = words.summary(reenactment.plan, agreement)
        with open(reenactment.script, encoding="utf-8") as file:
            script = file.read()
        self._result.show(render.result(reenactment.plan, agreement, script), said)

    # -- what somebody does

    def _act(self, action: str, values: Mapping[str, str]) -> None:
        if action == "reenact":
            self._tasks.start("re-enacting", self._reenact)
        elif action == "end":
            self._tasks.start("ending the live ranks", self._end)
        else:
            if action == "export":
                self._script = values.get("script", "").strip() or SCRIPT
            self._run_actions.take(action, values)

    def _reenact(self) -> str:
        self._end()
        reenactment = reenacting.reenact(self.recording, wait=False)
        self.reenactment = reenactment
        variable.assign("reenactment", reenactment)
        self._compare(reenactment, known=False)
        self.dashboard = Dashboard(reenactment.world)
        self._place()
        self._compare(reenactment.wait(), known=True)
        return "The live ranks are the variable reenactment.world of the notebook."

    def _end(self) -> str:
        if self.dashboard is not None:
            self.dashboard.stop()
        if self.reenactment is not None:
            self.reenactment.close()
        self.reenactment = self.dashboard = None
        self._result.show("")
        self._place()
        return "The live ranks are ended."

    def _added(self, recording: Recording) -> None:
        """More files were read, together with those before: a re-enactment of those alone is over."""
        variable.assign("recording", recording)
        self._end()
        self.recording, self.found = recording, diagnose(recording)
        self._show()


def _choose(
    board: Board,
    panel: RankPanel,
    recording: Recording,
    diagnosis: Diagnosis,
    action: str,
    values: Mapping[str, str],
) -> None:
    """Something was done in the board or in the panel of a rank: the tile of that rank is pressed."""
    panel.take(action, values)
    board.chosen = panel.chosen
    board.show_recording(recording, diagnosis)


def parts(recording: Recording, diagnosis: Diagnosis) -> tuple[Card, list[ipywidgets.Widget]]:
    """What shows a completed Recording: the card, and what is below it. Of a report, only what it contains: it may lack times and stacks."""
    found = Card(diagnosis)
    board, panel = Board(recording, diagnosis), RankPanel(recording, diagnosis)
    board.on_action = panel.on_action = partial(_choose, board, panel, recording, diagnosis)
    shown: list[ipywidgets.Widget] = [board, panel]
    if recording.report is None or any(call.entered_ns for record in recording.ranks.values() for call in record.calls):
        timeline = Timeline()
        timeline.show(recording, diagnosis)
        shown.append(timeline)
    shown += [part for one in PARTS if (part := one.still(recording, diagnosis)) is not None]
    for part in (found, *shown):
        if isinstance(part, Fragment | Timeline):
            part.sources = recording.sources
    return found, shown
