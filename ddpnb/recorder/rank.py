"""This process as a rank: its door, black box and control channel, and its runs."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import torch.distributed as dist

from ddpnb.recorder.channel.socket_channel import SocketChannel
from ddpnb.recorder.collectives import group_users
from ddpnb.recorder.collectives.phases import end_groups
from ddpnb.recorder.events import checkpoints
from ddpnb.recorder.process import kernel_environment, libraries, measuring, notebook, process_state, script
from ddpnb.recorder.process.displays import Displays
from ddpnb.recorder.process.functions import SentFunctions
from ddpnb.recorder.process.hidden_modules import HiddenModules
from ddpnb.recorder.process.loading import without_collection
from ddpnb.recorder.process.settings import Settings
from ddpnb.recorder.process.startup import RankStartup
from ddpnb.recorder.process.user_modules import UserModules
from ddpnb.recorder.recorder import Recorder
from ddpnb.recording import verbs
from ddpnb.recording.blackbox import RUN_ACTIVE, RUN_ENDED
from ddpnb.recording.descriptors import Descriptor
from ddpnb.recording.files import write_private
from ddpnb.recording.protocol import FOLDER

# All ranks begin a run at the same time. A client that comes before the store tries again half a second later (torch
# 2.13): without a lead every second script waits for that.
_LEAD_S = 0.02


class Rank(Recorder):
    """This engine as a rank. There is one, made by ``start``."""

    def __init__(self, folder: str, rank: int) -> None:
        super().__init__(folder, rank)
        self.watch_own_ranks()
        checkpoints.record_in(self.box)
        self.directory = os.getcwd()  # where the user works; ``attach`` goes there
        self.import_path: tuple[int, str] | None = None  # index and folder that ``attach`` puts back into sys.path
        self.modules = HiddenModules()
        self._plain = kernel_environment.plain_environment(os.environ)
        self._spare = _Spare(folder)
        self._after_script = False  # what there is belongs to the last script: the next run does not share it
        self._functions = SentFunctions()
        self._user_modules = UserModules()
        self._settings = Settings()
        self.startup = RankStartup(self.door.release)
        self.displays: Displays | None = None  # in an engine, where ``display()`` is there
        self._lost: list[str] = []  # what used the last group, and cannot use another one
        self.control.serve(verbs.Group, lambda _: self._group())

    def run(self, order: dict[str, Any], payload: bytes | None) -> Any:
        """Run a script, a function or a cell as the main program; returns the function's result.

        ``order``: run (number), fence, log, directory, environment, outcome (file for the ending), holds,
        and script and arguments, or cell (file with the lines), or for a function (the payload) the path
        on which its modules are found. A script begins in a fresh state, without a process group. Functions and
        cells share theirs, until a script: the group, modules and variables of earlier ones, or of the launcher.

        The ending is written to the outcome file before the box says that the run is over.
        """
        cell, is_script = "cell" in order, "script" in order
        shares = not is_script and not self._after_script
        kept = shares and dist.is_initialized()
        if not kept:
            self.clean()
            if not shares:
                self.replicas.models.forget()
        else:
            if not cell:
                gc.collect()  # the models of an earlier function are no longer compared
            self.replicas.models.remember()
        if not kept and not cell and self.rank != 0:  # rank 0 holds the store
            time.sleep(_LEAD_S)
        self.phases.shares, self.phases.inherited = not is_script, kept
        self._user_modules.begin()
        libraries.begin(fresh=not shares)
        if not shares:
            self._settings.restore()
        self.begin_run(order["run"], order["fence"], keep=kept)
        self.arm(order["run"], order["holds"], order["faults"], unhurried=order["unhurried"])
        self.box.set_run(order["run"], RUN_ACTIVE)
        checkpoints.new_run()
        path: list[str] = []
        displays = self.displays if cell else None
        if payload is not None:
            code = self._functions.call(payload, self.control.namespace)
            path = order["path"]
        elif cell:
            code = script.cell(order["cell"], self.control.namespace, displays.value if displays is not None else None)
        else:
            code = script.script(order["script"], order["arguments"])
            path = [script.folder_of(os.path.join(order["directory"], order["script"]))]
        around = (
            process_state.like_a_prompt(order["log"], order["environment"])
            if cell
            else process_state.like_a_process(
                order["log"],
                order["directory"],
                order["environment"],
                path,
                self.modules.hidden(keep=["cloudpickle"] if payload else []),
                partial(self._user_modules.forget, everything=is_script),
            )
        )
        ended: script.Ended | None = None
        try:
            showing = displays.to(order["log"]) if displays is not None else nullcontext()
            with notebook.hidden(self._plain, prompt=cell), around, showing:
                self.phases.environment()
                ended = script.run(script.with_hint(code, is_script=is_script), self.door.release)
                self.finish(raised=ended.ending["how"] == "raised")
                if displays is not None:
                    displays.end()
        except BaseException:  # also Ctrl-C while a thread of the script is joined
            if ended is None:
                raise
            traceback.print_exc()  # not everything could be restored, but the ending is known
        self._after_script = is_script
        # The user's builtins, after a cell: the ending is written whatever ``open`` is. And finalizers of what the script
        # has left may wait, that of a data loader for its workers: they run when the ending is known.
        with process_state.OwnBuiltins(), without_collection():
            self._user_modules.end(is_script=is_script, raised=ended.ending["how"] == "raised")
            self.ended(ended.ending, *(("", {}) if is_script else self._named(order)))
            with self._spare.given_up():
                _write(ended.ending, order["outcome"])
            self.box.set_run(order["run"], RUN_ENDED)
        return ended.result

    @staticmethod
    def _named(order: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The name of a function or cell, and its place if it is a single statement."""
        if "cell" not in order:
            return str(order.get("name", "a function")), {}
        name = os.path.basename(order["cell"]).removesuffix(".py")
        return name, script.only_statement(order["cell"])

    def start_up(self, order: dict[str, Any]) -> dict[str, Any]:
        """Begin a start-up in steps, or make one of them; see ``recorder.process.startup``.

        ``order``: run (number), fence, log, and step (name) with what it needs, or none to begin.
        """
        if "step" not in order:
            self.clean()
            self.door.new_run(order["run"], order["fence"])
            self.arm(order["run"], order["holds"], order["faults"], unhurried=order["unhurried"])
            self.box.set_run(order["run"], RUN_ACTIVE)
            checkpoints.new_run()
            self.phases.renewed = bool(order.get("renews"))
            return {}
        self.door.release.clear()
        with process_state.like_a_prompt(order["log"], {}), self.door.release.inside():
            result = self.startup.step(order["step"], order)
        if order["step"] == "process group" and result["state"] == "done":
            count = len(self.phases.orphans)
            troubles = self.phases.orphans.adopt()
            result["facts"] |= {"models kept": count - len(troubles)} if count else {}
            result["facts"] |= {"troubles": troubles} if troubles else {}
            result["facts"] |= {"lost": self._lost} if self._lost else {}
            self._lost = []
        return result

    def _group(self) -> verbs.Groups:
        """The default group, what uses it, and how far each group has come; called from the control channel."""
        there = dist.is_initialized() and not self._after_script
        return verbs.Groups(
            size=dist.get_world_size() if there else 0,
            rank=dist.get_rank() if there else -1,
            backend=str(dist.get_backend()).removeprefix("undefined") if there else "",
            timeout_s=self.door.groups.timeout_s(dist.group.WORLD) if there else None,
            closed=self.door.release.is_closed,
            torn=self.door.release.torn or bool(self.door.off),
            counts=tuple(verbs.GroupCounts(**one) for one in self.door.groups.counts()),
            users=tuple(group_users.users(self.control.namespace)) if there else (),
            models=group_users.wrapped_models() if there else 0,
        )

    def measure(self, order: dict[str, Any]) -> dict[str, Any]:
        """Versions and the times of collectives, after a start-up; ``order``: log, and environment as in a step."""
        self.door.release.clear()
        with process_state.like_a_prompt(order["log"], order["environment"]), self.door.release.inside():
            return measuring.measure()

    def clean(self) -> None:
        """Destroy the process group and clean up after the last run. Models of cells are kept."""
        if dist.is_initialized():
            self._lost = [] if self._after_script else group_users.users(self.control.namespace)
        self._after_script = self.phases.shares = self.phases.inherited = False
        self.startup.begin()
        self.phases.orphans.remember()
        self.replicas.models.remember()
        end_groups()
        gc.collect()  # the next run, and its forks, must not find garbage of this one


class _Spare:
    """A file descriptor for the ending of a script that has used up all others."""

    def __init__(self, folder: str) -> None:
        self._folder = folder  # opened here only
        self._open()

    def _open(self) -> None:
        self._kept = Descriptor(os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC))

    @contextmanager
    def given_up(self) -> Iterator[None]:
        self._kept.close()
        try:
            yield
        finally:
            with suppress(OSError):
                self._open()


def _write(ending: dict[str, Any], path: str) -> None:
    """Write how a script ended, all at once; where that fails, the little that must be known."""
    for content in (ending, {key: ending[key] for key in ("how", "code", "at_ns")}):
        try:
            write_private(path, json.dumps(content))
        except (OSError, ValueError, TypeError):
            if content is not ending:
                raise
        else:
            break


current: Rank | None = None


def start() -> Rank:
    """Install the hooks in this process, as the environment of the launcher says."""
    global current
    if current is None:
        current = Rank(os.environ[FOLDER], int(os.environ["RANK"]))
        SocketChannel(current.folder, current.rank, current.control.answer)
    return current


def attach() -> None:
    """Called in the engine's kernel once it exists: from now on cells and ``%px`` can run."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    rank = start()
    rank.control.namespace = shell.user_ns  # shared by %px and the cells of a run
    rank.displays = Displays(shell)
    rank.modules.note_stack()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ipyparallel's handler waits until the run is over
    os.chdir(rank.directory)
    # Last: %px finds the modules of the user, and what the engine still imports does not come from there.
    sys.path[:] = [*filter(None, sys.path), ""]
    if rank.import_path is not None:
        sys.path.insert(*rank.import_path)
    # What was imported by now stays: to look through half a million objects of torch again at every
    # collection between two runs would take longer than a short run.
    gc.freeze()
