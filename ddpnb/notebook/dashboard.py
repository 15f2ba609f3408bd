"""The dashboard: the diagnosis, the ranks, the time line, and the parts below them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ddpnb.notebook.actions import Actions
from ddpnb.notebook.findings import FindingActions
from ddpnb.notebook.live import Live, Picture
from ddpnb.notebook.panel import Panel
from ddpnb.notebook.part import Context
from ddpnb.notebook.parts import PARTS
from ddpnb.notebook.parts.rank import RankDebugger
from ddpnb.notebook.run_actions import RunActions
from ddpnb.notebook.state import present_state
from ddpnb.notebook.tasks import Tasks
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.parts import Board, Card
from ddpnb.notebook.widgets.timeline import Timeline
from ddpnb.recording.calls import CallState
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Recording
from ddpnb.render import board, controls, still
from ddpnb.render.views import board as boards
from ddpnb.render.views.present import Present
from ddpnb.world.live import LiveRanks
from ddpnb.world.run import Run

_PASSING = ("running", "starting")
_LOOKED_AT = (RankState.HELD, RankState.WAITING, RankState.BLOCKED)


class Dashboard(Panel):
    """The dashboard of live ranks. It updates itself; each button calls one of their methods in the background.

    ``text`` is the content as plain text; ``parts``: those that unfold, by name.
    """

    def __init__(self, world: LiveRanks) -> None:
        self.world = world
        self._tasks = Tasks(self._refresh_controls)
        self.actions = Actions(world, self._tasks, self._look)
        self._asked_in = ("", False)  # the state in which a question was asked
        self._kept_of: tuple[Run | None, tuple[object, ...]] | None = None  # what the saved state shows
        self._outcome_of: object = None  # the run whose outcome is shown
        self._card_of: object = None  # what the card shows
        self._stood: object = None  # where the ranks stood when their stacks were asked for
        self._kind = "world" if self.actions.can_begin else "job"
        self._context = Context(world, self._tasks, self.actions, self._act, self._ask, self._show_run)
        self._run_actions = RunActions(self._tasks, self._context.snapshot)
        self.head = Fragment(label=self._kind, on_action=self._act, on_seen=self._look, live=True)
        self.card = Card(headline=False)
        FindingActions(self.card, self._act)
        self.board = Board(on_action=self._act)
        self.timeline = Timeline(on_action=self._act, live=True)
        self.rank = RankDebugger(self._context)
        unfold = (part(self._context) for part in PARTS if self.actions.can_begin or not part.for_worlds)
        self.parts = {part.name: part for part in (self.rank, *unfold)}
        shown = [part.widget for part in self.parts.values() if part is not self.rank]
        self._beating = (self.head, self.timeline, self.board, *shown)
        super().__init__(
            (
                self.head,
                self._run_actions.report,
                self.card,
                self.board,
                self.rank.widget,
                self.timeline,
                *shown,
            )
        )
        self._sources: dict[str, str] = {}  # of files, as the ranks ran them
        for widget in self.box.children:
            if isinstance(widget, Fragment | Timeline):
                widget.sources = self._sources
        self._live = Live(world._ranks, self._show, self._beat, lambda: self.head.unseen)
        self._tasks.draw()
        self._live.start()

    # -- what is shown

    def stop(self) -> None:
        """Stop updating; the content stays."""
        self._live.stop()
        self._rest()

    @property
    def ended(self) -> bool:
        return self._live.ended

    def _beat(self) -> None:
        if self.world.closed:
            self._rest()
            self._tasks.draw()
            return
        for widget in self._beating:
            if widget.live:
                widget.beat()

    def _rest(self) -> None:
        """What is shown is known to be the last state: the page misses nothing."""
        for widget in self._beating:
            widget.live = False

    def _show(self, picture: Picture) -> None:
        """Show a new picture; called on the polling thread."""
        with self._tasks.drawing:  # what is saved meanwhile is of one moment
            self._show_parts(picture)

    def _show_parts(self, picture: Picture) -> None:
        self._context.picture = picture
        now = self._context.present = present_state(self.world, picture)
        run, recording, diagnosis = picture.run, now.recording, now.diagnosis
        self.board.live = not self.world.closed
        if picture.fresh:
            self._context.shown = None
        if self._context.shown is not None:  # an earlier run: nothing of it changes
            self._tasks.draw()
            return
        self._show_board()
        if picture.fresh:
            name, began_ns = (f"run {run.number}", run._monitor.began_ns) if run is not None else ("start-up", 0)
            self.timeline.begin(recording, diagnosis, name, began_ns)
            if self._outcome_of is not None:  # not the first run that this dashboard shows
                self._tasks.forget()
                self._run_actions.forget()
        elif picture.lost:
            self.timeline.lose()
        held = {
            rank: [one for one in record.calls if one.state is CallState.HELD]
            for rank, record in recording.ranks.items()
        }
        self.timeline.add(
            {rank: (*picture.calls.get(rank, ()), *held.get(rank, ())) for rank in recording.ranks},
            recording,
            diagnosis,
            recording.taken_ns,
            picture.marks,
        )
        for part in self.parts.values():
            if picture.fresh:
                part.run_began()
            part.show_picture(picture)
        self._show_card(run, now)
        if (run, diagnosis is not None) != self._outcome_of:
            self._outcome_of = (run, diagnosis is not None)
            self._show_outcome(diagnosis)
        self._look_closer(now)
        self._tasks.draw()

    def _show_run(self, run: Run | None) -> None:
        """Show an earlier run with its findings, tiles, calls and lines as they were; None: the ranks as they are now.

        Of a world that is closed, nothing comes any more: then that is the last run.
        """
        if run is None and self.world.closed:
            run = self.world.last_run
        recording = run.recording if run is not None else None
        self._context.shown = run if recording is not None else None
        self._card_of = None
        if run is None or recording is None:
            self._outcome_of = None
            self._live.restart()
            return
        diagnosis = run.diagnosis
        self.card.show_diagnosis(diagnosis, f"Run {run.number} ({run.what}), as it was: {controls.words(run.outcome)}")
        self._show_board()
        self.timeline.show(recording, diagnosis)
        self._show_recording(recording, diagnosis)
        self._tasks.draw()

    def _show_card(self, run: Run | None, now: Present) -> None:
        """The findings of the last run, which say so when it is over; while it runs, what was warned of."""
        diagnosis = now.diagnosis or (run._monitor.warned if run is not None else None)
        shown = run, diagnosis.findings if diagnosis is not None else None, now.over
        if shown != self._card_of:
            self._card_of = shown
            over = f"Last run ({run.number}): {controls.words(now.last)}" if run is not None and now.over else ""
            self.card.show_diagnosis(diagnosis, over)

    def _show_board(self) -> None:
        """The ranks as they are now, or as they were in the run that is shown; the chosen one is pressed."""
        self.board.chosen = self.rank.widget.chosen
        run, now = self._context.shown, self._context.present
        if run is not None and run.recording is not None:
            self.board.show_recording(run.recording, run.diagnosis)
        elif now is not None:
            self.board.show_tiles(now.tiles, now.recording)

    def _show_outcome(self, diagnosis: Diagnosis | None) -> None:
        """The outcome of a run is known, or another run has begun."""
        recording = self.world.last_run.recording if self.world.last_run is not None else None
        if diagnosis is not None and recording is not None:
            self._show_recording(recording, diagnosis)
        for part in self.parts.values():
            part.outcome_known(diagnosis)

    def _show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        self._sources.update(recording.sources)
        for part in self.parts.values():
            part.show_recording(recording, diagnosis)

    def _look_closer(self, now: Present) -> None:
        """Held ranks that stopped at another place: read their variables."""
        stands = tuple((tile.ranks, tile.doing, tile.site) for tile in now.tiles if tile.state in _LOOKED_AT)
        held = any(tile.state is RankState.HELD for tile in now.tiles)
        if not held or stands == self._stood or self._read():  # else they are being read at the place before
            self._stood = stands

    def _refresh_controls(self) -> None:
        """Update the controls and the result of the last action; called by ``Tasks.draw``."""
        now = self._context.present
        self.actions.follow(now.recording if now is not None else None)
        head = self._head()
        if (head.activity, head.dead) != self._asked_in:
            self._asked_in = head.activity, head.dead
            self._tasks.forget() if head.activity == "closed" else self.actions.withdraw()
            head = self._head()
        words = f"{self._kind} of {head.description}: {head.state}"
        self.head.show(controls.head(head), "\n".join(filter(None, (words, head.answer.said))))
        for part in self.parts.values():
            part.refresh(head)
        shown = self._context.present
        errors = shown.diagnosis.errors if shown is not None and shown.diagnosis is not None else ()
        outcome = head.activity, head.last, tuple((one.code, one.summary, one.where) for one in errors)
        of = self.world.last_run, outcome
        if of != self._kept_of and head.activity not in _PASSING:
            urgent = self._kept_of is None or outcome != self._kept_of[1]
            self._kept_of = of
            self.kept.changed(urgent=urgent)

    def state(self) -> tuple[str, str]:
        with self._tasks.drawing:
            run, now, text = self.world.last_run, self._context.present, self.text
            title = self.head.text.partition("\n")[0]
        diagnosis = now.diagnosis if now is not None else None
        recording = (run.recording if run is not None else None) or (now.recording if now is not None else None)
        tiles = now.tiles if now is not None else ()
        return still.state(title, diagnosis=diagnosis, tiles=tiles, recording=recording), text

    def _head(self) -> controls.Head:
        now, closed = self._context.present, self.world.closed
        shown = self._context.shown
        of_past = (f"below: run {shown.number} as it was",) if shown is not None else ()
        activity = "closed" if closed else now.activity if now is not None else "idle"
        return controls.Head(
            title=self._kind,
            can_begin=self.actions.can_begin,
            description=self.world._ranks.description,
            activity=activity,
            last=now.last if now is not None else "",
            details=(*(now.details if now is not None and not closed else ()), *of_past),
            alive=not closed,
            in_run=now is not None and not closed and now.busy,
            held=activity == "held",
            dead=now is not None and bool(now.dead),
            ran=self.world.last_run is not None,
            busy=self._tasks.busy,
            answer=self._tasks.answer(""),
        )

    # -- what somebody does

    def _act(self, action: str, values: Mapping[str, str], place: str = "") -> None:
        if self._run_actions.take(action, values):
            return
        if action == "reconnect":
            self._reconnect()
            return
        if self.actions.take(action, values, place) or any(part.act(action, values) for part in self.parts.values()):
            if self.board.chosen != self.rank.widget.chosen:
                self._show_board()
            return
        if action == "why":
            self._tasks.start("diagnosing", self._why)

    def _reconnect(self) -> None:
        """A page has heard nothing for a while: give it all that is shown, and see that it is updated again."""
        self._live.revive()
        for widget in self.box.children:
            widget.send_state()
        self._beat()
        self._look()

    def _look(self) -> None:
        self._live.hurry()

    def _why(self) -> str:
        run = self.world.last_run
        if run is None:
            return "Nothing has run yet."
        before = self.card.diagnosis.findings if self.card.diagnosis is not None else ()
        diagnosis = run.diagnosis
        if run._monitor.diagnosis is None:
            self.card.show_diagnosis(diagnosis, "Now")
        recording = self.world.snapshot()
        self._show_recording(recording, diagnosis)
        at = f"Checked at {time.strftime('%H:%M:%S')}:"
        if not diagnosis.findings:
            return f"{at} no problems found yet: {board.headline(boards.tiles(recording))}."
        codes = ", ".join(finding.code for finding in diagnosis.findings)
        same = before and [one.code for one in before] == [one.code for one in diagnosis.findings]
        return f"{at} {'the same' if same else 'now'}: {codes}."

    def _ask(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Read the stacks and variables of the ranks, or show those of the run that is over; False: that is being done."""
        ask = self._context.snapshot
        return self._tasks.start("reading stacks and variables", lambda: self._show_recording(*ask()), quiet=True)
