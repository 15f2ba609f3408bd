"""The dashboard: the diagnosis, the ranks, the time line, and the controls."""

from __future__ import annotations

import glob
import threading
from collections.abc import Callable, Mapping

from ddpnb import pitfalls
from ddpnb.control import comparison
from ddpnb.live import LiveRanks
from ddpnb.model.calls import CallState
from ddpnb.model.findings import Diagnosis
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import Recording
from ddpnb.model.startup import StartupState
from ddpnb.panels.actions import Actions
from ddpnb.panels.live import Live, Picture
from ddpnb.panels.memory import Memory
from ddpnb.panels.panel import Panel
from ddpnb.panels.tasks import Tasks
from ddpnb.render import board, cells, controls, faults, lesson, lines, replicas, startup
from ddpnb.views import board as boards
from ddpnb.views.gradient_norms import gradient_norms
from ddpnb.widgets.fragment import Fragment
from ddpnb.widgets.parts import Board, Card, Source, Stacks, Variables
from ddpnb.widgets.timeline import Timeline

_SCRIPTS = 200  # that are offered
_LOOKED_AT = (RankState.HELD, RankState.WAITING, RankState.BLOCKED)


class Dashboard(Panel):
    """The dashboard of live ranks. It updates itself; each button calls one of their methods in the background.

    ``text`` is the content as plain text.
    """

    def __init__(self, world: LiveRanks) -> None:
        self.world = world
        self._tasks = Tasks(self._refresh_controls)
        self.actions = Actions(world, self._tasks, self._look)
        self._drawing = threading.RLock()
        self._controls: object = None  # of what the forms were made
        self._memory = Memory()
        self._picture: Picture | None = None
        self._said_of: object = None  # the diagnosis that is shown
        self._stood: object = None  # where the ranks stood when their stacks were asked for
        self._kind = "world" if self.actions.can_begin else "job"
        self.head = Fragment(label=self._kind, on_action=self._act, live=True)
        self.card = Card(on_action=self._act, headline=False)
        self.board = Board(on_action=self._act)
        self.timeline = Timeline(on_action=self._act, live=True)
        self.detail = Fragment(label="what was chosen", on_action=self._act)
        self.runs = self._part("Run", "what to run")
        self.lesson = Fragment(label="lesson", on_action=self._act)
        self.hold = self._part("Hold and step", "hold and step")
        self.faults = self._part("Inject faults", "faults")
        self.startup = self._part("Start-up, step by step", "start-up of the ranks", live=True)
        self.variables = Variables(on_unfolded=self._ask)
        self.stacks = Stacks(on_unfolded=self._ask)
        self.source = Source(on_unfolded=self._ask)
        self.replicas = self._part("Replicas", "replicas", self._compare_replicas)
        self.memory = self._part(
            "Memory over time", "memory over time", lambda: self._tasks.start("drawing", self._draw)
        )
        self.output = self._part("Output of the ranks", "output of the ranks", self._show_output)
        to_begin = (self.runs, self.lesson), (self.startup,)
        of_runs, of_startup = to_begin if self.actions.can_begin else ((), ())
        parts = (self.head, self.card, self.board, self.timeline, self.detail, *of_runs, self.hold, self.faults,
                 *of_startup, self.variables, self.stacks, self.source, self.replicas, self.memory, self.output)  # fmt: skip
        super().__init__(parts)
        self._beating = (self.head, self.startup, self.timeline, self.board)
        self._live = Live(world._ranks, self._show, self._beat)
        self._refresh_controls()
        self._live.start()

    def _part(
        self, title: str, label: str, unfolded: Callable[[], None] | None = None, *, live: bool = False
    ) -> Fragment:
        return Fragment(title=title, label=label, folds=True, on_action=self._act, on_unfolded=unfolded, live=live)

    # -- what is shown

    def stop(self) -> None:
        """Stop updating; the content stays."""
        self._live.stop()

    def _beat(self) -> None:
        if self.world.closed:
            self._refresh_controls()
            return
        for one in self._beating:
            one.beat()

    def _show(self, picture: Picture) -> None:
        """Show a new picture; called on the polling thread."""
        self._picture = picture
        run, recording = picture.run, picture.recording
        diagnosis = run._monitor.diagnosis if run is not None else None
        self._memory.take(recording)
        self.board.live = not self.world.closed
        replaced = any(not in_run for _, in_run in self.world._ranks.members.values())
        self.board.show_recording(recording, None if replaced else diagnosis)
        if picture.fresh:
            self.timeline.show(recording, diagnosis)
            self.card.show_diagnosis(None)
            self.variables.fold()
        held = {
            rank: [one for one in record.calls if one.state is CallState.HELD]
            for rank, record in recording.ranks.items()
        }
        self.timeline.add(
            {rank: (*picture.calls.get(rank, ()), *held.get(rank, ())) for rank in recording.ranks},
            recording,
            diagnosis,
            recording.taken_ns,
        )
        if (run, diagnosis is not None) != self._said_of:
            self._said_of = (run, diagnosis is not None)
            self._known(diagnosis)
        self._look_closer(recording)
        self._refresh_controls()

    def _known(self, diagnosis: Diagnosis | None) -> None:
        """Called when the outcome of a run is known."""
        self.card.show_diagnosis(diagnosis)
        taken = self.world.last_run.recording if self.world.last_run is not None else None
        if diagnosis is not None and taken is not None:
            self.stacks.show_recording(taken, diagnosis)
            self.variables.show_recording(taken)
            self.source.show_recording(taken)
            if diagnosis.outcome == "hang":
                self.variables.unfold()
        self._show_output()

    def _look_closer(self, recording: Recording) -> None:
        """Held ranks that stopped at another place: read their variables."""
        tiles = boards.tiles(recording)
        stands = tuple((one.ranks, one.doing) for one in tiles if one.state in _LOOKED_AT)
        if any(one.state is RankState.HELD for one in tiles) and stands != self._stood:
            self._ask()
        self._stood = stands

    def _refresh_controls(self) -> None:
        """Update the controls and the result of the last action; called on the polling and the worker threads."""
        with self._drawing:
            starting = None if self.world.closed else self.world.startup
            state = starting.state if starting is not None else None
            head = self._head(state)
            words = f"{self._kind} of {head.description}: {head.outcome}{', ' + head.detail if head.detail else ''}"
            self.head.show(controls.head(head), "\n".join(one for one in (words, head.said) if one))
            going = tuple(starting.sentences().values()) if starting is not None else ()
            shown = (head, self.actions.kind, len(self.actions.holds), len(self.actions.injections), going)
            if shown == self._controls and not (state and any(map(state.running_of, range(self.world.size)))):
                return  # forms that are as they were need not be written again
            self._controls = shown
            size, open_ = self.world.size, head.alive
            free = open_ and not head.in_run and not head.busy
            scripts = sorted(glob.glob("*.py"))[:_SCRIPTS]
            self.runs.show(controls.runs(_stories(), scripts, enabled=free, going=head.in_run))
            self.hold.show(controls.hold(size, [str(one) for one in self.actions.holds], enabled=open_))
            armed = [(str(one), "") for one in self.actions.injections]
            self.faults.show(faults.faults(self.actions.kind, size, armed, enabled=open_))
            notes = starting.notes() if starting is not None else ()
            stepping = "making a step of start-up" in head.busy
            self.startup.show(
                startup.startup(state, size, notes, busy=stepping, enabled=open_), str(starting) if starting else ""
            )

    def _head(self, state: StartupState | None) -> controls.Head:
        run, closed = self.world.last_run, self.world.closed
        ranks = range(self.world.size)
        starting = state is not None and any(state.running_of(rank) for rank in ranks)
        in_run = not closed and run is not None and any(map(run._monitor.is_in, ranks))
        tiles = boards.tiles(self._picture.recording) if self._picture is not None else ()
        held = in_run and any(one.state is RankState.HELD for one in tiles)
        outcome = run.outcome if run is not None else "idle"
        for name, so in (("held", held), ("starting", starting), ("closed", closed)):
            outcome = name if so else outcome
        diagnosis = run._monitor.diagnosis if run is not None else None
        known = diagnosis.timing.get("diagnosis_s") if diagnosis is not None and outcome == "hang" else None
        return controls.Head(
            title=self._kind,
            can_begin=self.actions.can_begin,
            description=self.world._ranks.description,
            outcome=outcome,
            detail=f"detected after {known:.1f} s" if known else "",
            alive=not closed,
            in_run=in_run or starting,
            held=held,
            busy=self._tasks.busy,
            said=self._tasks.said,
            bad=self._tasks.bad,
        )

    # -- what somebody does

    def _act(self, action: str, values: Mapping[str, str]) -> None:
        if self.actions.take(action, values):
            return
        if action == "why":
            self._tasks.start("diagnosing", self._why)
        elif action == "kind":
            self.actions.kind = values.get("kind", "")
            self._refresh_controls()
        elif action == "rank" and values.get("rank", "").isdecimal():
            self._choose(int(values["rank"]))
        elif action == "select":
            self._select(values)
        elif action == "story":
            self._tasks.start("reading", lambda: self._read(values.get("name", "")))
        elif action in ("save PNG", "save SVG"):
            self._tasks.start("saving", lambda: self._save(action[-3:].lower()))

    def _look(self) -> None:
        self._live.hurry()

    def _why(self) -> str:
        run = self.world.last_run
        if run is None:
            return "Nothing has run yet."
        found = run.diagnosis
        self.card.show_diagnosis(found)
        taken = self.world.snapshot()
        self.stacks.show_recording(taken, found)
        self.variables.show_recording(taken)
        self.source.show_recording(taken)
        return "" if found.findings else "No problems found yet: " + board.headline(boards.tiles(taken)) + "."

    def _ask(self) -> None:
        """Read the stacks and variables of the ranks."""
        self._tasks.start("reading stacks and variables", self._asked, quiet=True)

    def _asked(self) -> None:
        run = self.world.last_run
        taken = self.world.snapshot() if run is None or not run.done or run.recording is None else run.recording
        self.stacks.show_recording(taken, run._monitor.diagnosis if run is not None else None)
        self.variables.show_recording(taken)
        self.source.show_recording(taken)

    def _choose(self, rank: int) -> None:
        """Show or hide the details of a rank."""
        self.board.chosen = None if self.board.chosen == rank else rank
        if self._picture is not None:
            self.detail.show(board.detail(self._picture.recording, self.board.chosen))
            self._look()

    def _select(self, values: Mapping[str, str]) -> None:
        """A call was selected in the time line: show its line."""
        rank, number = values.get("rank", ""), values.get("number", "")
        if rank.isdecimal() and number.isdecimal():
            reader = self.world._ranks.observer().reader(int(rank)) if int(rank) < self.world.size else None
            calls = reader.these([int(number)]) if reader is not None else ()
            self.detail.show(board.call(int(rank), calls[0] if calls else None))

    def _read(self, name: str) -> None:
        """The lesson card of a pitfall."""
        story = pitfalls.get(name)
        script = story.broken.read_text(encoding="utf-8")
        shown = lesson.lesson(story.title, script, story.finding, story.why, story.look, story.fix, story.difference)
        self.lesson.show(shown, f"{story}\n\n{script}")

    def _compare_replicas(self) -> None:
        self._tasks.start("comparing the replicas", self._compared)

    def _compared(self) -> None:
        found: comparison.Comparison = self.world.compare()
        differences = [(one.name, one.sides, one.largest, one.norms) for one in found.differences]
        run = self.world.last_run
        drift = (
            next((one for one in run.diagnosis.findings if one.tensors), None)
            if run is not None and run.recording is not None
            else None
        )
        shown = replicas.replicas(
            differences, found.compared, exact=found.exact, since=drift.summary if drift else "", notes=found.notes
        )
        norms = gradient_norms(run.recording) if run is not None and run.recording is not None else {}
        if norms:
            shown += controls.picture(
                lines.png(lines.gradients(norms)), "gradient norm of each rank, by step", save=False
            )
        self.replicas.show(shown, str(found))

    def _draw(self) -> None:
        drawn = lines.png(self._memory.figure())
        self.memory.show(controls.picture(drawn, "memory of each rank over time"), "memory of each rank over time")

    def _save(self, kind: str) -> str:
        path = f"ddpnb-memory.{kind}"
        with open(path, "wb") as file:
            file.write(lines.drawn(self._memory.figure(), kind))
        return f"Saved as {path}."

    def _show_output(self) -> None:
        run = self.world.last_run
        if run is not None:
            outputs = {rank: cells.Output(cells.as_seen(run.log(rank)[-20_000:])) for rank in range(self.world.size)}
            blocks = cells.fold(outputs)
            self.output.show(
                cells.html(blocks) if blocks else '<p class="faint">Nothing was written.</p>', cells.text(blocks)
            )


def _stories() -> list[tuple[str, str]]:
    return [(one.name, f"{one.finding} {one.title}") for one in pitfalls.all_of()]
