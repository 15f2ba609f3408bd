"""The actions of buttons and forms. Each calls a method of World with the values of its form."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ddpnb import pitfalls
from ddpnb.errors import UsageError
from ddpnb.notebook import asked
from ddpnb.notebook.armed_hold import ArmedHold
from ddpnb.notebook.tasks import Tasks
from ddpnb.pitfalls import Pitfall
from ddpnb.recording import phrases
from ddpnb.recording.holds import Hold
from ddpnb.recording.recording import Recording
from ddpnb.render.answers import LONGEST, Answer
from ddpnb.texts import shortened
from ddpnb.world.breakpoints import Holding, end_of_run
from ddpnb.world.faults import Injection
from ddpnb.world.live import LiveRanks
from ddpnb.world.run import Run
from ddpnb.world.world import World

Values = Mapping[str, str]
_STEP_S = 5.0
_PRESSED = 4  # keys for a step that may be pressed ahead


class Actions:
    """The actions of a dashboard. ``take`` starts an action in the background.

    Args:
        world: the ranks to control.
        tasks: runs the actions.
        looked: called after an action, to refresh the dashboard.
    """

    def __init__(self, world: LiveRanks, tasks: Tasks, looked: Callable[[], None]) -> None:
        self.world = world
        self.tasks = tasks
        self._lock = threading.Lock()  # of what is armed: buttons change it, and each reader takes out what has ended
        self._arming = threading.Lock()  # of holds at lines, one after the other
        self._stepping, self._steps = threading.Lock(), threading.Semaphore(_PRESSED)
        self._off: list[tuple[Holding, Callable[[], bool]]] = []  # holds that were switched off here
        self._listed: list[Holding] = []
        self._injections: list[tuple[Injection, Callable[[], bool]]] = []
        self._to_confirm: tuple[int, ...] = ()  # the ranks whose restart was asked for once
        self._looked = looked
        self.fixed: tuple[Run, Pitfall] | None = None  # the run of a pitfall's fixed script, if that was the last one
        self._does: dict[str, tuple[str, Callable[[Values], Any]]] = {
            "hold": ("holding", lambda _: self._hold()),
            "hold at": ("holding", self._hold_at),
            "hold line": ("holding at a line", self._hold_line),
            "unhold": ("removing a hold", self._unhold),
            "switch hold": ("switching a hold", self._switch_hold),
            "step": ("stepping", self._step),
            "next step": ("stepping", self._step_next),
            "resume": ("resuming", self._resume),
            "release": ("releasing", lambda _: str(world.release())),
            "restart": ("restarting ranks", self._restart),
            "evaluate": ("evaluating", self._evaluate),
            "inject": ("arming a fault", self._inject),
            "heal": ("removing faults", self._heal),
            "run": ("starting the script", self._run),
            "pitfall": ("starting the pitfall", self._pitfall),
            "begin": ("beginning start-up", lambda _: self._own.init()),
            "step all": ("making a step of start-up", lambda _: self._startup().step(timeout=_STEP_S)),
            "step these": ("making a step of start-up", self._step_these),
            "run to the end": ("making the steps of start-up", lambda _: self._startup().run()),
        }

    def withdraw(self) -> None:
        """The state of the ranks has changed: what was asked before is not answered by another click."""
        self._to_confirm = ()
        self.tasks.withdraw(lambda answer: answer.asks)

    def follow(self, recording: Recording | None) -> None:
        """What was said to be armed is said no longer when it has ended, or holds ranks."""
        holds = [one.holding for one in self.listed if one.on and not one.may_hold(recording)]
        waiting = (*holds, *self.injections)
        self.tasks.withdraw(lambda answer: answer.armed is not None and answer.armed not in waiting)

    def take(self, action: str, values: Values, place: str = "") -> bool:
        """Start this action, whose answer is shown at this place; False if it is not an action on a World."""
        if action not in self._does:
            return False
        what, does = self._does[action]
        if action != "restart":
            self._to_confirm = ()

        def work() -> Any:
            try:
                return does(values)
            finally:
                self._looked()

        # Steps of start-up are made beside one another: one that waits is what the next one is for.
        # Each line has its own hold, and a key that is pressed for each step makes them one after the other.
        self.tasks.start(what, work, place, again=action in ("release", "next step", "step these", "hold line"))
        return True

    @property
    def can_begin(self) -> bool:
        """Whether these ranks can begin something else: a job that was started elsewhere runs its own program."""
        return isinstance(self.world, World)

    @property
    def _own(self) -> World:
        if not isinstance(self.world, World):
            raise UsageError(
                "this job was started elsewhere and runs its own program.",
                "ddpnb.launch(n) starts ranks that run others.",
            )
        return self.world

    # -- what is armed

    @property
    def listed(self) -> list[ArmedHold]:
        """The holds that are armed, here or in a cell, and those that were switched off here, in the order in which they came."""
        armed = self.world._breakpoints.armed
        with self._lock:
            self._off = [one for one in self._off if not one[1]()]
            known = [*armed, *(holding for holding, _ in self._off if holding not in armed)]
            self._listed = [one for one in self._listed if one in known]
            self._listed += [one for one in known if one not in self._listed]
            return [ArmedHold(one, one in armed) for one in self._listed]

    @property
    def injections(self) -> list[Injection]:
        """The faults that were armed here and have not ended with their run."""
        with self._lock:
            self._injections = [one for one in self._injections if not one[1]()]
            return [injection for injection, _ in self._injections]

    def _forget(self, injection: Injection) -> None:
        with self._lock:
            self._injections = [one for one in self._injections if one[0] is not injection]

    # -- hold and step

    def _hold(self) -> Answer:
        return Answer((), "Armed: every rank stops before its next collective.", armed=self.world.hold())

    def _hold_at(self, values: Values) -> Answer:
        holding = self.world.hold(
            values.get("before", "") or (),
            ranks=asked.ranks(values),
            seq=asked.whole(values, "seq"),
            site=values.get("site", "").strip(),
            when=values.get("when", "").strip(),
            parted=bool(values.get("parted")),
            line=values.get("line", "").strip(),
            differs=values.get("differs", "").strip(),
            exception=bool(values.get("exception")),
        )
        return _armed(holding)

    def _hold_line(self, values: Values) -> str | Answer:
        """Arm a hold at a line of a file, also with conditions, or remove those that are armed there, or switch them."""
        file, line = values.get("file", ""), asked.whole(values, "line") or 1
        when, count = values.get("when", "").strip(), asked.whole(values, "count") or 1
        with self._arming:
            there = [one for one in self.listed if one.is_at(file, line)]
            if values.get("switch"):
                return self._switched(there)
            Hold(line=f"{file}:{line}", when=when, count=count)  # refused before another one is removed
            for one in there:
                self._remove(one)
            if there and not values.get("with_conditions"):
                return f"Removed: {', '.join(map(str, there))}."
            holding = self.world.hold(line=f"{file}:{line}", ranks=asked.ranks(values), when=when, count=count)
        return _armed(holding)

    def _unhold(self, values: Values) -> None:
        for one in self._numbered(values):
            self._remove(one)

    def _switch_hold(self, values: Values) -> str:
        return self._switched(self._numbered(values))

    def _numbered(self, values: Values) -> list[ArmedHold]:
        number, listed = asked.whole(values, "number", 0), self.listed
        return listed[number : number + 1] if number is not None else []

    def _remove(self, one: ArmedHold) -> None:
        if one.on:
            one.holding.remove()
        self._switch_on(one.holding)

    def _switched(self, holds: list[ArmedHold]) -> str:
        for one in holds:
            if one.on:
                with self._lock:
                    self._off.append((one.holding, end_of_run(self.world._ranks, keep=one.holding._keep)))
                one.holding.remove()
            else:
                self.world._breakpoints.hold(one.hold, one.holding.ranks, keep=one.holding._keep)
                self._switch_on(one.holding)
        return " ".join(f"{'Disabled' if one.on else 'Armed'}: {one}." for one in holds)

    def _switch_on(self, holding: Holding) -> None:
        """It is no longer one that is switched off."""
        with self._lock:
            self._off = [one for one in self._off if one[0] != holding]

    def _step_next(self, values: Values) -> None:
        """A step of those whose key is pressed again before the one before is made."""
        if not self._steps.acquire(blocking=False):
            return  # as many wait as anybody presses ahead
        try:
            with self._stepping:
                self._step(values)
        finally:
            self._steps.release()

    def _step(self, values: Values) -> None:
        count, how = asked.whole(values, "n") or 1, values.get("how", "") or "collective"
        self.world.step(count, ranks=asked.ranks(values), timeout=_STEP_S, how=how)

    def _resume(self, values: Values) -> None:
        """Let ranks continue; a hold before every call ends with it, as ``World.resume`` says."""
        self.world.resume(asked.ranks(values))

    def _evaluate(self, values: Values) -> str:
        if not values.get("expression", "").strip():
            raise UsageError("no expression given.", "Enter one, such as loss.item().")
        found = self.world.evaluate(values["expression"].strip())
        share = max((LONGEST - len(found.expression)) // max(len(found), 1) - len("rank 1000: "), 8)
        each = (f"rank {rank}: {shortened(str(one), share)}" for rank, one in found.items())
        return "\n".join((f"{found.expression}:", *each))

    def _restart(self, values: Values) -> str | Answer:
        """Restart ranks; where that ends processes that live, only when it is asked for a second time."""
        ranks = asked.ranks(values)
        if ranks is None and not self._own._restart.would_replace():
            return self._restart_all()
        ending = (
            tuple(rank for rank in self._own._restart.would_replace() if self._lives(rank)) if ranks is None else ()
        )
        if ending and self._to_confirm != ending:
            self._to_confirm = ending
            whose = f"{phrases.verb(ending, 'the process', 'the processes')} of {phrases.ranks(ending)}"
            its = phrases.verb(ending, "its", "their")
            return _question(
                f"Click restart again to end {whose}, with {its} variables and models. Release interrupts what runs "
                "there, and keeps them."
            )
        self._to_confirm = ()
        return str(self._own.restart(ranks))

    def _restart_all(self) -> str | Answer:
        """Nothing is dead and nothing runs: new processes for all ranks, when they are asked for a second time."""
        everyone = tuple(range(self.world.size))
        if self._to_confirm != everyone:
            self._to_confirm = everyone
            return _question(
                "No rank is dead, stopped or in a run. Click restart again to give all ranks new processes: their variables "
                "and models are lost."
            )
        self._to_confirm = ()
        return str(self._own.restart(everyone))

    def _lives(self, rank: int) -> bool:
        processes = self.world._ranks.processes
        return processes.alive(rank) and not processes.stopped(rank)

    # -- faults

    def _inject(self, values: Values) -> Answer:
        until = end_of_run(self.world._ranks)
        injection = self.world.inject(asked.described(values), ranks=asked.ranks(values))
        with self._lock:
            self._injections.append((injection, until))
        return _armed(injection)

    def _heal(self, values: Values) -> None:
        number = asked.whole(values, "number", 0)
        armed = self.injections
        if number is None:
            self.world.heal()
            for one in armed:
                self._forget(one)
        elif number < len(armed):
            armed[number].heal()
            self._forget(armed[number])

    # -- what to run

    def _run(self, values: Values) -> None:
        script = values.get("script", "").strip()
        if not script:
            raise UsageError("no script given.", "Enter its path, such as train.py.")
        try:
            arguments = shlex.split(values.get("arguments", ""))
        except ValueError as error:
            raise UsageError(f"cannot parse the arguments: {error}.") from None
        self._own.run(script, *arguments, stream=None)

    def _pitfall(self, values: Values) -> None:
        story = pitfalls.get(values.get("name", ""))
        if story.lacking:
            raise UsageError(f"this pitfall cannot be run here: {story.lacking}.", "Choose another one.")
        script = story.fixed if values.get("fixed") else story.broken
        how = {"fence": story.fence, "patience": story.patience}
        run = self._own.run(script, stream=None, end_after_patience=True, **how)
        self.fixed = (run, story) if values.get("fixed") else None

    # -- start-up

    def _startup(self) -> Any:
        if self.world.startup is None:
            raise UsageError("start-up has not begun.", "Click 'begin start-up'.")
        return self.world.startup

    def _step_these(self, values: Values) -> None:
        ranks = asked.ranks(values)
        if ranks is None:
            raise UsageError("no rank selected.", "Select the ranks that make their next step.")
        self._startup().step(ranks, timeout=_STEP_S)


def _armed(what: Holding | Injection) -> Answer:
    return Answer((), f"Armed: {what}.", armed=what)


def _question(words: str) -> Answer:
    return Answer((), words, asks=True)
