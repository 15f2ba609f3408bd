"""Processes that a script starts as ranks by itself: the launcher did not start them, so nobody watches them."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from types import CodeType, FunctionType
from typing import Any

import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.process.components import names_in
from ddpnb.recorder.stacks.user_frames import is_user_file
from ddpnb.recording.events.startup import RanksStarted

_LAUNCHERS = frozenset(
    {"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "mpirun", "mpiexec"}
)
_WORDS = 8  # of a command, in which a launcher is looked for
_ENV = 9  # place of ``env`` among the arguments of Popen behind the command
_INIT = "init_process_group"
_FUNCTIONS = 200  # that are looked at for a call of it


class OwnRanks(Hooks):
    """``torch.multiprocessing.spawn``, processes whose function joins a group, and commands that are launchers or get a RANK."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__(box)
        self._own = {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK")}
        self._told = False

    def install(self) -> None:
        self.before(sys.modules[start_processes.__module__], "start_processes", self._spawned)
        self.before(BaseProcess, "start", self._started)
        self.before(subprocess.Popen, "__init__", self._command)

    def new_run(self) -> None:
        super().new_run()
        self._told = False

    def _spawned(self, fn: Any, _args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        self._note("torch.multiprocessing.spawn", nprocs, joins(fn))

    def _started(self, process: Any, *_: Any, **__: Any) -> None:
        if joins(getattr(process, "_target", None)) or joins(type(process).run):
            self._note("multiprocessing.Process", 1, True)

    def _command(self, _process: Any, args: Any, *more: Any, **options: Any) -> None:
        env = options.get("env", more[_ENV] if len(more) > _ENV else None)
        variables = env if isinstance(env, Mapping) else os.environ
        words: list[Any] = args.split() if type(args) is str else list(args) if type(args) in (list, tuple) else []
        names = [os.path.basename(word) for word in words[:_WORDS] if type(word) is str]
        launcher = next((name for name in names if name in _LAUNCHERS), "")
        other = any(variables.get(name) not in (None, own) for name, own in self._own.items())
        if launcher or other:
            self._note(launcher or "subprocess.Popen with a RANK", 1, True)

    def _note(self, how: str, count: int, sure: bool) -> None:
        if dist.is_initialized():  # this process is a rank: its children are helpers
            return
        command = _command_line()
        self.emit(RanksStarted(how=how, count=int(count), joins=sure, command=command))
        if sure and not self._told and os.environ.get("RANK") == "0":
            self._told = True
            print(
                f"ddpnb: warning: the script starts its ranks itself ({how}): ddpnb does not watch them. Use: "
                f"ddpnb run -- {command or 'python SCRIPT'}",
                file=sys.stderr,
                flush=True,
            )


def joins(function: Any) -> bool:
    """Whether this function, or one of the user's that it calls by name, calls init_process_group."""
    seen: set[CodeType] = set()
    waiting = [function]
    while waiting and len(seen) < _FUNCTIONS:
        one = waiting.pop()
        while isinstance(one, functools.partial):
            one = one.func
        one = getattr(one, "__func__", one)
        if not isinstance(one, FunctionType) or one.__code__ in seen or not is_user_file(one.__code__.co_filename):
            continue
        seen.add(one.__code__)
        names = set(names_in(one.__code__))
        if _INIT in names:
            return True
        waiting += [one.__globals__[name] for name in names if name in one.__globals__]
    return False


def _command_line() -> str:
    """The command that starts this script without a launcher; empty for a function or a cell."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not sys.argv or not isinstance(file, str) or os.path.abspath(sys.argv[0]) != os.path.abspath(file):
        return ""
    return shlex.join(["python", *map(str, sys.argv)])[:400]
