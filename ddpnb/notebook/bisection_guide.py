"""The guide of a bisection: it asks what fails, proposes what to vary, makes the probes or takes a person's judgement."""

from __future__ import annotations

import glob
import os
import shlex
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import cast

from ddpnb.errors import DdpnbError, ProbeEnded, UsageError
from ddpnb.notebook import asked
from ddpnb.notebook.panel import Panel
from ddpnb.notebook.tasks import Tasks
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.ranks import devices
from ddpnb.render import answers
from ddpnb.studies.bisection import bisect as bisections
from ddpnb.studies.bisection import guide, words
from ddpnb.studies.bisection.algorithms import Answer
from ddpnb.studies.bisection.bisecting import Bisection
from ddpnb.studies.bisection.command import Request
from ddpnb.studies.bisection.log import LOG, read_log, searching, take_log
from ddpnb.studies.bisection.varied import Varied

_MOST_RANKS = 8
_SCRIPTS = 200  # that are offered
_BEAT_S = 2.0
REPRODUCTION = "repro.sh"
_FOUND = "found"  # where what was found is shown, and its answers


class Guide(Panel):
    """A guided bisection. What its buttons do, the methods of ``ddpnb.Bisection`` do as well.

    Args:
        bisection: that was begun; None: ask what fails.
        command, ranks: what the form shows at first.
    """

    def __init__(self, bisection: Bisection | None = None, command: str = "", ranks: int | None = None) -> None:
        self.bisection = bisection
        self._command, self._ranks = command, ranks or max(2, min(_MOST_RANKS, devices.count_gpus()))
        self._offered: tuple[list[Varied], list[Varied]] | None = None  # on the command line, and not on it
        self._began: float | None = None  # the probe that runs
        self._asking = threading.Lock()
        self._pausing = self._stopped = False  # what somebody wants since the probes began
        self._late = False  # the probe that was to be ended had just come to its end: the next one would end instead
        self._tasks = Tasks(self._show)
        self.form = Fragment(label="bisection", on_action=self.act)
        self.probe = Fragment(label="next probe", on_action=self.act)
        self.found = Fragment(label="what was found", on_action=self.act)
        self.remaining = Fragment(label="what may be the cause")
        self.probes = Fragment(label="probes")
        super().__init__((self.form, self.found, self.probe, self.remaining, self.probes))
        self._tasks.draw()

    # -- what is shown

    def _show(self) -> None:
        """Called by ``Tasks.draw``."""
        if self.bisection is not None:
            self._show_search(self.bisection)
            return
        for one in (self.probe, self.found, self.remaining, self.probes):
            one.show("")
        answer = self._tasks.answer("")
        if self._offered is not None:
            html = guide.choose(self._command, *self._offered, answer=answer)
            self.form.show(html, "\n".join(filter(None, (f"what to vary of {self._command}", answer.said))))
        else:
            most = max(2, min(_MOST_RANKS, 2 * (os.cpu_count() or 2)))
            scripts = sorted(glob.glob("*.py"))[:_SCRIPTS]
            html = guide.ask(self._command, most, self._ranks, scripts, log=_interrupted(), answer=answer)
            self.form.show(html, answer.said or "what fails?")

    def _show_search(self, bisection: Bisection) -> None:
        search, began = bisection.search, self._began
        answer, written = replace(self._tasks.answer(""), busy=()), self._tasks.answer(_FOUND)
        running = None if began is None else time.monotonic() - began
        probe = bisection.next_probe() if bisection.result is None else None
        head = guide.head(bisection, idle=began is None, pausing=self._pausing, answer=answer)
        self.form.show(head, "\n".join(filter(None, (bisection.title, answer.said))))
        self.probe.live = running is not None
        self.probe.show(guide.upcoming(bisection, running), words.named(probe, search) if probe is not None else "")
        found = repr(bisection) if bisection.result is not None else ""
        self.found.show(guide.result(bisection, written), "\n".join(filter(None, (found, written.said))))
        self.remaining.show(guide.remaining(bisection))
        self.probes.show(guide.probes(search), words.log(search))

    # -- what somebody does

    def act(self, action: str, values: Mapping[str, str]) -> None:
        """Do what a button asks for, with the fields of its form; what is wrong is shown."""
        try:
            self._do(action, values)
        except (DdpnbError, ValueError, OSError) as error:
            self._tasks.say(str(error), bad=True)

    def _do(self, action: str, values: Mapping[str, str]) -> None:
        bisection = self.bisection
        if bisection is None:
            self._prepare(action, values)
        elif action in ("pause", "stop"):
            with self._asking:
                if self._began is None:
                    return
                self._pausing = True
                if action == "stop":
                    self._stopped = True
                    bisection.stop()
            self._tasks.draw()
        elif action in ("run", "step"):
            self._start(bisection, once=action == "step")
        elif self._began is not None:
            self._tasks.say("A probe runs: pause, and wait for its end.")
        elif action == "judge":
            probe = bisection.next_probe()
            if probe is not None:
                bisection.answer(probe, cast(Answer, values.get("answer", "")), reason="judged by hand")
            self._tasks.say("")
        elif action == "undo":
            undone = bisection.undo()
            self._tasks.say(f"Taken back: {words.named(undone.probe, bisection.search)}.")
        elif action == "write":
            self._tasks.start("writing the command", lambda: _write(bisection), _FOUND)
        elif action == "over":
            self.bisection = self._offered = None
            self._tasks.forget()
            self._tasks.draw()

    def _start(self, bisection: Bisection, *, once: bool) -> None:
        """Make the next probe, or all that are needed, until somebody pauses."""
        if not self._tasks.busy:
            self._pausing, self._stopped, self._began = once, False, time.monotonic()
            self._tasks.start("probing", lambda: self._probe(bisection))

    def _probe(self, bisection: Bisection) -> str:
        threading.Thread(target=self._beat, name="ddpnb beat", daemon=True).start()
        try:
            while bisection.result is None:
                self._began = time.monotonic()
                self._tasks.draw()
                try:
                    bisection.step()
                except ProbeEnded:
                    if self._stopped or not self._late:
                        self._stopped = False
                        raise
                    self._late = False
                    continue
                if self._pausing:
                    break
        finally:
            with self._asking:
                self._late = self._stopped
                self._began, self._pausing = None, False
        if bisection.result is not None and bisection.result.outcome != "undecided":
            bisection.remove_log()
        return ""

    def _beat(self) -> None:
        while self._began is not None:
            self.probe.beat()
            time.sleep(_BEAT_S)

    # -- what fails, and what is varied

    def _prepare(self, action: str, values: Mapping[str, str]) -> None:
        if action == "propose":
            self._command = values.get("command", "").strip()
            self._ranks = asked.whole(values, "n") or self._ranks
            self._offered = bisections.proposals(_split(self._command))
            self._tasks.say("")
        elif action == "continue":
            self.bisection = bisections.continued(LOG)
            self._tasks.say("")
        elif action == "back":
            self._offered = None
            self._tasks.say("")
        elif action == "begin":
            self._begin(values)

    def _begin(self, values: Mapping[str, str]) -> None:
        command = _split(self._command)
        script = bisections.is_script(command)
        span, git, by = (values.get(name, "").strip() or None for name in ("span", "git", "by"))
        vary = () if span or git or by else tuple(self._chosen(values))
        env = tuple(_split(values["env"])) if not by and values.get("env", "").strip() else ()
        ladder, repeat = not by and values.get("order") == "ladder", None if values.get("repeat") == "auto" else 1
        request = Request(
            tuple(command),
            script,
            size=self._ranks,
            fork=script and values.get("fork") == "fork",
            vary=vary,
            env=env,
            span=span,
            git=git,
            ladder=ladder,
            by=by,
            repeat=repeat,
        )
        bisection, said = bisections.of_command(request), ""
        if bisection.by_hand:
            bisection.path, said = take_log()
        self.bisection = bisection
        self._start(bisection, once=False)
        if said:
            self._tasks.say(said)

    def _chosen(self, values: Mapping[str, str]) -> list[str]:
        """What is ticked, as ``vary`` of ``ddpnb.bisect`` takes it.

        Raises:
            UsageError: nothing is.
        """
        chosen: list[str] = []
        for number, one in enumerate(one for part in self._offered or () for one in part):
            if values.get(f"on:{number}"):
                harmless = values.get(f"harmless:{number}", "").strip()
                chosen.append(f"{one.name}={harmless}|{one.failing}" if harmless else one.name)
        if not chosen and not values.get("env", "").strip():
            raise UsageError("nothing is chosen.", "Tick at least one option, or name something else to vary.")
        return chosen


def _write(bisection: Bisection) -> answers.Answer:
    bisection.write_repro(REPRODUCTION)
    return answers.written(f"Written: {REPRODUCTION}. Run it with: sh {REPRODUCTION}", REPRODUCTION)


def _split(command: str) -> list[str]:
    """The words of a command line.

    Raises:
        UsageError: there are none, or a quote is not closed.
    """
    try:
        words_of = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"this is not a command line: {error}.", "Close the quote.") from None
    if not words_of:
        raise UsageError("no command given.", "Give the failing command, such as: train.py --amp")
    return words_of


def _interrupted() -> str:
    """Describes the search that the log in this folder can continue; empty if there is none."""
    with suppress(DdpnbError, KeyError, TypeError):
        if searching(LOG) is not None:  # another process continues it
            return ""
        log = read_log(LOG)
        number = len(log["trials"])
        command = shlex.join(map(str, log["options"]["command"]))
        return f"The search of {command} was interrupted after {number} probe{'s' * (number != 1)}:"
    return ""
