"""This process as a rank: its door, black box and hotline, and the runs that it is asked for."""

from __future__ import annotations

import gc
import json
import os
import sys
from functools import partial
from typing import Any

import torch.distributed as dist

from ddpnb.engine import script
from ddpnb.engine.blackbox import BlackBox
from ddpnb.engine.data import Data
from ddpnb.engine.door import Door
from ddpnb.engine.hooks import Hooks
from ddpnb.engine.hotline import Hotline
from ddpnb.engine.phases import Phases
from ddpnb.engine.replicas import Replicas
from ddpnb.engine.training import Training
from ddpnb.engine.wire import FOLDER
from ddpnb.model.blackbox import RUN_ACTIVE, RUN_ENDED


class Rank:
    """The hooks of this process. There is one, made by ``start``."""

    def __init__(self, folder: str, rank: int) -> None:
        self.folder = folder
        self.rank = rank
        self.box = BlackBox(os.path.join(folder, f"rank{rank}.box"), rank)
        self.door = Door(self.box, folder)
        self.phases = Phases(self.box, self.door)
        #: all that is watched outside of the door; each set of hooks falls alone when it fails
        self.replicas = Replicas(self.box, self.door, folder, rank)
        self.data = Data(self.box)
        self.hooks: list[Hooks] = [self.phases, Training(self.box), self.replicas, self.data]
        self.hotline = Hotline(self.door, self.replicas)
        self.door.open()
        for hooks in self.hooks:
            hooks.install()
        # A forked child (a data loader's worker) shares the box's memory: it must not write there.
        # Nothing of torch may be touched in it, though: to drop a Work or to take a kernel away
        # where the threads of the parent do not exist is a segmentation fault now and then.
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.box.silence()
        gc.freeze()  # what is garbage here is so by its parent: a model's group would wait for threads that are not there

    def run(self, order: dict[str, Any], payload: bytes | None) -> Any:
        """Run one script or function as the main program; returns the function's result.

        ``order``: run (number), fence, log, directory, environment, outcome (file for the ending)
        and script and arguments, or the path on which a function's modules are found. How it ended
        is written to the outcome file before the box says that the run is over, so whoever sees the
        second finds the first.
        """
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()  # what the run before has left is not to be found by this one, nor in a fork of it
        self.door.new_run(order["run"], order["fence"])
        for hooks in self.hooks:
            hooks.new_run()
        self.replicas.begin(order["run"])
        self.box.set_run(order["run"], RUN_ACTIVE)
        code = script.script(order["script"], order["arguments"]) if payload is None else partial(_call, payload, order)
        with script.like_a_process(order["log"], order["directory"], order["environment"]):
            self.phases.environment()
            ended = script.run(code)
            self.data.finish()
            if ended.ending["how"] != "raised":  # then a call that failed would look completed
                self.door.drain(0.1)
        self.box.event("exit", {key: ended.ending[key] for key in ("how", "code")})
        unfinished = order["outcome"] + ".part"
        with open(unfinished, "w") as file:
            json.dump(ended.ending, file)
        os.replace(unfinished, order["outcome"])
        self.box.set_run(order["run"], RUN_ENDED)
        return ended.result


current: Rank | None = None


def start() -> Rank:
    """Install the hooks in this process, as the environment of the launcher says."""
    global current
    if current is None:
        current = Rank(os.environ[FOLDER], int(os.environ["RANK"]))
    return current


def attach() -> None:
    """Called in the engine's kernel once it exists: from here on the hotline answers."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    start().hotline.register(shell.kernel)


def _call(payload: bytes, order: dict[str, Any]) -> Any:
    """Call a function that our own client sent over its signed channel."""
    import cloudpickle

    sys.path[:] = [*order["path"], *(folder for folder in sys.path if folder not in order["path"])]
    function, args = cloudpickle.loads(payload)
    return function(*args)


def run(order: dict[str, Any], payload: bytes | None = None) -> Any:
    """Run what a launcher ordered; ``payload`` is a function and its arguments, by cloudpickle."""
    return start().run(order, payload)
