"""The dashboard: what is wrong in one sentence, the evidence, the mend; the ranks, the time line, and hands on them."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping

from ddpnb import comparison, pitfalls
from ddpnb.analysis import board as boards
from ddpnb.analysis.norms import gradient_norms
from ddpnb.model.calls import CallState
from ddpnb.model.recording import Recording
from ddpnb.panels.actions import Actions
from ddpnb.panels.live import Live, Picture
from ddpnb.panels.memory import Memory
from ddpnb.panels.panel import Panel
from ddpnb.panels.work import Work
from ddpnb.render import board, cells, controls, faults, lines, replicas, startup
from ddpnb.verdict import Verdict
from ddpnb.widgets.fragment import Fragment
from ddpnb.widgets.parts import Board, Card, Stacks, Variables
from ddpnb.widgets.timeline import Timeline
from ddpnb.world import World

_LOOKED_AT = ("held", "waiting", "blocked elsewhere")


class Dashboard(Panel):
    """A live World. Buttons start work and return; what is shown follows the ranks by itself.

    ``text`` says the same in words; every button is a method of World.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._work = Work(self._refresh_controls)
        self.actions = Actions(world, self._work, self._look)
        self._memory = Memory()
        self._picture: Picture | None = None
        self._said_of: object = None  # the verdict that is shown
        self._stood: object = None  # where the ranks stood when their stacks were asked for
        self.head = Fragment(label="world", on_action=self._act, live=True)
        self.card = Card(on_action=self._act, headline=False)
        self.board = Board(on_action=self._act)
        self.timeline = Timeline(on_action=self._act, live=True)
        self.detail = Fragment(label="what was chosen", on_action=self._act)
        self.runs = self._part("Run", "what to run")
        self.hold = self._part("Hold and step", "hold and step")
        self.faults = self._part("Break it", "faults")
        self.startup = self._part("Start-up, step by step", "start-up of the ranks", live=True)
        self.variables = Variables(on_unfolded=self._ask)
        self.stacks = Stacks(on_unfolded=self._ask)
        self.replicas = self._part("Replicas", "replicas", self._compare_replicas)
        self.memory = self._part(
            "Memory over time", "memory over time", lambda: self._work.start("drawing", self._draw)
        )
        self.output = self._part("Output of the ranks", "output of the ranks", self._show_output)
        parts = (self.head, self.card, self.board, self.timeline, self.detail, self.runs, self.hold, self.faults,
                 self.startup, self.variables, self.stacks, self.replicas, self.memory, self.output)  # fmt: skip
        super().__init__(parts)
        self._beating = (self.head, self.startup, self.timeline, self.board)
        self._live = Live(world, self._show, self._beat)
        self._refresh_controls()
        self._live.start()

    def _part(
        self, title: str, label: str, unfolded: Callable[[], None] | None = None, *, live: bool = False
    ) -> Fragment:
        return Fragment(title=title, label=label, folds=True, on_action=self._act, on_unfolded=unfolded, live=live)

    # -- what is shown

    def stop(self) -> None:
        """Follow the ranks no more; what is shown stays."""
        self._live.stop()

    def _beat(self) -> None:
        if self.world.closed:
            self._refresh_controls()
            return
        for one in self._beating:
            one.beat()

    def _show(self, picture: Picture) -> None:
        """A new picture, from the thread that looks."""
        self._picture = picture
        run, recording = picture.run, picture.recording
        verdict = run.verdict if run is not None else None
        self._memory.take(recording)
        self.board.live = not self.world.closed
        self.board.show_recording(recording, verdict)
        if picture.fresh:
            self.timeline.show(recording, verdict)
            self.card.show_diagnosis(None)
        held = {
            rank: [one for one in record.calls if one.state is CallState.HELD]
            for rank, record in recording.ranks.items()
        }
        self.timeline.add(
            {rank: (*picture.calls.get(rank, ()), *held.get(rank, ())) for rank in recording.ranks},
            recording,
            verdict,
            recording.taken_ns,
        )
        if (run, verdict is not None) != self._said_of:
            self._said_of = (run, verdict is not None)
            self._known(verdict)
        self._look_closer(recording)
        self._refresh_controls()

    def _known(self, verdict: Verdict | None) -> None:
        """The outcome of a run has come to be known."""
        self.card.show_diagnosis(verdict)
        taken = self.world.last_run.recording if self.world.last_run is not None else None
        if verdict is not None and taken is not None:
            self.stacks.show_recording(taken, verdict)
            self.variables.show_recording(taken)
            if verdict.outcome == "hang":
                self.variables.unfold()
        self._show_output()

    def _look_closer(self, recording: Recording) -> None:
        """Held ranks that have come to stand somewhere else: their variables are what one wants to see."""
        tiles = boards.tiles(recording)
        stands = tuple((one.ranks, one.doing) for one in tiles if one.state in _LOOKED_AT)
        if any(one.state == "held" for one in tiles) and stands != self._stood:
            self._ask()
        self._stood = stands

    def _refresh_controls(self) -> None:
        size, closed = self.world.size, self.world.closed
        busy = self._work.busy
        tiles = boards.tiles(self._picture.recording) if self._picture is not None else ()
        state = self.world.startup.state if self.world.startup is not None and not closed else None
        starting = state is not None and any(state.running_of(rank) for rank in range(size))
        run = self.world.last_run
        verdict = run.verdict if run is not None else None
        going = not closed and any(one.state not in ("idle", "ended") for one in tiles)
        held = any(one.state == "held" for one in tiles)
        outcome = (
            "closed"
            if closed
            else "starting"
            if starting
            else "held"
            if held
            else run.outcome
            if run is not None
            else "idle"
        )
        detail = (
            f"known after {verdict.timing['diagnosis_s']:.1f} s" if verdict is not None and outcome == "hang" else ""
        )
        head = controls.Head(
            "world",
            self.world.plan.description,
            outcome,
            detail,
            not closed,
            going or starting,
            held,
            busy,
            self._work.said,
            self._work.bad,
        )
        words = f"world of {self.world.plan.description}: {outcome}{', ' + detail if detail else ''}"
        self.head.show(controls.head(head), words)
        free = not closed and not going and not starting and not busy
        self.runs.show(controls.runs(_stories(), sorted(glob.glob("*.py"))[:200], enabled=free, going=going))
        self.hold.show(controls.hold(size, [str(one) for one in self.actions.holds], enabled=not closed))
        armed = [(str(one), "") for one in self.actions.injections]
        self.faults.show(faults.faults(self.actions.kind, size, armed, enabled=not closed))
        notes = self.world.startup.notes() if state is not None and self.world.startup is not None else ()
        self.startup.show(
            startup.startup(state, size, notes, busy="making a step of start-up" in busy, enabled=not closed)
        )

    # -- what somebody does

    def _act(self, action: str, values: Mapping[str, str]) -> None:
        if self.actions.take(action, values):
            return
        if action == "why":
            self._work.start("looking at all ranks", self._why)
        elif action == "kind":
            self.actions.kind = values.get("kind", "")
            self._refresh_controls()
        elif action == "rank" and values.get("rank", "").isdigit():
            self._choose(int(values["rank"]))
        elif action == "select":
            self._select(values)
        elif action in ("save PNG", "save SVG"):
            self._work.start("saving", lambda: self._save(action[-3:].lower()))

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
        return "" if found.findings else "Nothing is wrong so far: " + board.headline(boards.tiles(taken)) + "."

    def _ask(self) -> None:
        """Ask the ranks for their stacks and variables."""
        self._work.start("asking the ranks", self._asked)

    def _asked(self) -> None:
        run = self.world.last_run
        taken = self.world.snapshot() if run is None or not run.done or run.recording is None else run.recording
        self.stacks.show_recording(taken, run.verdict if run is not None else None)
        self.variables.show_recording(taken)

    def _choose(self, rank: int) -> None:
        """Somebody wants to see more of a rank, or no more."""
        self.board.chosen = None if self.board.chosen == rank else rank
        if self._picture is not None:
            self.detail.show(board.detail(self._picture.recording, self.board.chosen))
            self._look()

    def _select(self, values: Mapping[str, str]) -> None:
        """A call was chosen in the time line: where it was made."""
        rank, number = values.get("rank", ""), values.get("number", "")
        if rank.isdigit() and number.isdigit():
            reader = self.world.observer().reader(int(rank)) if int(rank) < self.world.size else None
            calls = reader.these([int(number)]) if reader is not None else ()
            self.detail.show(board.call(int(rank), calls[0] if calls else None))

    def _compare_replicas(self) -> None:
        self._work.start("comparing the replicas", self._compared)

    def _compared(self) -> None:
        found: comparison.Comparison = self.world.compare()
        differences = [(one.name, one.sides, one.largest, one.norms) for one in found.differences]
        run = self.world.last_run
        drift = (
            next((one for one in run.verdict.findings if one.tensors), None)
            if run is not None and run.verdict is not None
            else None
        )
        shown = replicas.replicas(
            differences, found.compared, exact=found.exact, since=drift.summary if drift else "", notes=found.notes
        )
        norms = gradient_norms(run.recording) if run is not None and run.recording is not None else {}
        if norms:
            shown += controls.picture(
                lines.png(lines.gradients(norms)), "norm of the gradients of each rank, step by step", save=False
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
            self.output.show(cells.html(cells.fold(outputs)) or '<p class="faint">Nothing was written.</p>')


def _stories() -> list[tuple[str, str]]:
    return [(one.name, f"{one.finding} {one.title}") for one in pitfalls.all_of()]
