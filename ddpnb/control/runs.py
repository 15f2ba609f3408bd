"""Runs: a script, a function or the lines of a cell, on the ranks."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from ddpnb import arguments
from ddpnb.control import run_requests
from ddpnb.control.breakpoints import Breakpoints
from ddpnb.control.faults import Faults
from ddpnb.control.groups import Groups
from ddpnb.control.ranks import Ranks
from ddpnb.control.restart import Restart
from ddpnb.control.run import Run
from ddpnb.control.run_monitor import RunMonitor
from ddpnb.errors import UsageError
from ddpnb.observe import logs
from ddpnb.processes.environment import working_directory
from ddpnb.recorder import protocol

_NOTEBOOK_OUTPUT = 1 << 20  # bytes of output that a run shows in a notebook; the files hold all


class Runs:
    """Runs code on the ranks.

    Args:
        ranks, breakpoints, faults, groups, restart: the other parts of the World.
        fence, patience: for runs that do not choose their own.
    """

    def __init__(
        self,
        ranks: Ranks,
        breakpoints: Breakpoints,
        faults: Faults,
        groups: Groups,
        restart: Restart,
        fence: str,
        patience: float,
    ) -> None:
        self._ranks = ranks
        self._breakpoints = breakpoints
        self._faults = faults
        self._groups = groups
        self._restart = restart
        self.fence = fence
        self.patience = patience

    def run(
        self,
        target: str | os.PathLike[str] | Callable[..., Any],
        args: tuple[Any, ...],
        *,
        fence: str | None,
        patience: float | None,
        **output: Any,
    ) -> Run:
        """See ``World.run``."""
        script = isinstance(target, (str, os.PathLike))
        terms = self.fence if fence is None else fence, self.patience if patience is None else patience
        run_requests.check_terms(*terms)
        order, payload = (
            (run_requests.of_script(target, args), None)
            if script
            else run_requests.of_function(target, args, self._ranks.folders.output)
        )
        with self._ranks.lock:
            self._ranks.check_open()
            ranks = range(self._ranks.size)
            self._ranks.check_free(ranks)
            if script:
                self._ranks.startup = None  # it begins without a group, and makes its own
            self._restart.prepare(ranks, "script" if script else "function")
            return self._start(order, payload, ranks, terms, **output)

    def execute(
        self, code: str, ranks: int | Iterable[int] | None, stream: TextIO | bool | None, name: str | None
    ) -> Run:
        """See ``World.execute``."""
        with self._ranks.lock:
            self._ranks.check_open()
            chosen = self._ranks.chosen(ranks)
            name = name if name is not None else f"cell{self._ranks.number + 1}"
            order = run_requests.of_cell(code, self._ranks.folders.output, name)
            self._restart.prepare(chosen, "cell")
            return self._start(order, None, chosen, (self.fence, self.patience), stream=stream)

    def _start(
        self,
        order: dict[str, Any],
        payload: bytes | None,
        ranks: Sequence[int],
        terms: tuple[str, float],
        *,
        stream: TextIO | bool | None,
        log_dir: str | os.PathLike[str] | None = None,
        leave_after_crash: bool = False,
    ) -> Run:
        shared = self._ranks
        fence, patience = terms
        directory = working_directory()
        if log_dir is not None and not isinstance(log_dir, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"log_dir must be the path of a folder, not {arguments.short(log_dir)}.")
        number = shared.number = shared.number + 1
        folder = os.path.abspath(log_dir) if log_dir is not None else shared.folders.log_dir(number)
        shown = sys.stdout if stream is True else (stream or None)
        if shown is not None and not hasattr(shown, "write"):
            raise UsageError(f"stream must be a file, True, False or None, not {arguments.short(stream)}.")
        try:
            os.makedirs(folder, exist_ok=True)
            logs.set_aside(folder)
            for rank in ranks:
                open(os.path.join(folder, f"rank{rank}.log"), "w").close()
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise UsageError(f"cannot write logs to {folder}: {reason}.", "Choose another log_dir.") from None
        monitor = RunMonitor(
            shared.processes,
            shared.folders.memory,
            number,
            folder,
            ranks,
            {rank: shared.folders.ending(number, rank) for rank in range(shared.size)},
            patience=patience,
            stream=shown,
            stream_limit=_NOTEBOOK_OUTPUT if _in_notebook() else None,
            launch_s=shared.launch_s,
            leave_after_crash=leave_after_crash,
            interrupt=self._groups.release if _in_ipython() else None,
            logs_are_removed=log_dir is None,
        )
        weakref.finalize(monitor, shared.folders.forget, number).atexit = False  # dropping a run frees its files
        port = shared.new_port()
        order |= {"fence": fence, "directory": directory}
        holds, faults = self._breakpoints.hand_over(ranks), self._faults.hand_over(ranks)
        orders: dict[int, dict[str, Any]] = {}
        for rank in ranks:
            environment = {"MASTER_PORT": str(port), **self._faults.variables(rank)}
            orders[rank] = order | {"holds": holds[rank], "faults": faults[rank], "environment": environment}
        monitor.start(orders, payload, protocol.run)
        self._faults.run_started()
        shared.monitors.add(monitor)
        shared.last_monitor, shared.last_run = monitor, Run(monitor)
        shared.in_run.update(dict.fromkeys(ranks, monitor))
        return shared.last_run


def _in_ipython() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


def _in_notebook() -> bool:
    return _in_ipython() and type(sys.modules["IPython"].get_ipython()).__name__ == "ZMQInteractiveShell"
