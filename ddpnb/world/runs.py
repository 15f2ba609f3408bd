"""Runs: a script, a function or the lines of a cell, on the ranks."""

from __future__ import annotations

import os
import shlex
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from ddpnb.errors import UsageError
from ddpnb.ranks.environment import working_directory
from ddpnb.recorder import entries
from ddpnb.recording import arguments
from ddpnb.world import run_requests
from ddpnb.world.breakpoints import Breakpoints
from ddpnb.world.faults import Faults
from ddpnb.world.plain_run import prepare_logs
from ddpnb.world.ranks import OwnRanks
from ddpnb.world.release import Releasing
from ddpnb.world.restart import Restart
from ddpnb.world.run import Run
from ddpnb.world.run_monitor import RunMonitor
from ddpnb.world.run_requests import Terms

_NOTEBOOK_OUTPUT = 1 << 20  # bytes of output that a run shows in a notebook; the files hold all


class Runs:
    """Runs code on the ranks.

    Args:
        ranks, breakpoints, faults, releasing, restart: the other parts of the World.
        terms: of runs that do not choose their own.
    """

    def __init__(
        self,
        ranks: OwnRanks,
        breakpoints: Breakpoints,
        faults: Faults,
        releasing: Releasing,
        restart: Restart,
        terms: Terms,
    ) -> None:
        self._ranks = ranks
        self._breakpoints = breakpoints
        self._faults = faults
        self._releasing = releasing
        self._restart = restart
        self.terms = terms

    def run(
        self,
        target: str | os.PathLike[str] | Callable[..., Any],
        args: tuple[Any, ...],
        *,
        fence: str | None,
        patience: float | None,
        end_after_patience: bool | None,
        fresh: bool,
        **output: Any,
    ) -> Run:
        """See ``World.run``."""
        script = isinstance(target, (str, os.PathLike))
        if fresh and not script:
            raise UsageError("fresh=True is for scripts.", "Before a function: world.restart(range(world.size)).")
        chosen = {"fence": fence, "patience": patience, "end_after_patience": end_after_patience}
        terms = self.terms._replace(**{name: value for name, value in chosen.items() if value is not None})
        run_requests.check_terms(terms.fence, terms.patience)
        order, payload = (
            (run_requests.of_script(target, args, elsewhere=bool(self._ranks.plan.hosts)), None)
            if script
            else run_requests.of_function(target, args, self._ranks.folders.output)
        )
        name = getattr(target, "__name__", type(target).__name__)
        what = shlex.join([os.path.basename(order["script"]), *order["arguments"]]) if script else f"function {name}"
        with self._ranks.opened():
            ranks = range(self._ranks.size)
            self._ranks.check_free(ranks)
            if script:
                self._ranks.engines.check_files([os.path.abspath(order["script"]), working_directory()])
                self._ranks.startup = None  # it begins without a group, and makes its own
            if fresh:
                self._restart.renew()
            self._restart.prepare(ranks, "script" if script else "function")
            return self._start(order, payload, ranks, terms, what, **output)

    def execute(
        self,
        code: str,
        ranks: int | Iterable[int] | None,
        stream: TextIO | bool | None,
        name: str | None,
        *,
        draws: bool = False,
    ) -> Run:
        """See ``World.execute``; ``draws``: who shows the output understands what rich writes to a terminal."""
        with self._ranks.opened():
            chosen = self._ranks.chosen(ranks)
            name = name if name is not None else f"cell{self._ranks.number + 1}"
            order = run_requests.of_cell(code, self._ranks.folders.output, name)
            order["environment"] = {"TTY_COMPATIBLE": "1"} if draws and "TTY_COMPATIBLE" not in os.environ else {}
            self._restart.prepare(chosen, "cell")
            return self._start(order, None, chosen, self.terms, "cell", stream=stream)

    def _start(
        self,
        order: dict[str, Any],
        payload: bytes | None,
        ranks: Sequence[int],
        terms: Terms,
        what: str,
        *,
        stream: TextIO | bool | None,
        log_dir: str | os.PathLike[str] | None = None,
        leave_after_crash: bool = False,
    ) -> Run:
        """Start a run in the processes of the World."""
        shared = self._ranks
        directory = working_directory()
        if log_dir is not None and not isinstance(log_dir, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"log_dir must be the path of a folder, not {arguments.short(log_dir)}.")
        number = shared.number = shared.number + 1
        folder = os.path.abspath(log_dir) if log_dir is not None else shared.folders.log_dir(number)
        shown = sys.stdout if stream is True else (stream or None)
        if shown is not None and not hasattr(shown, "write"):
            raise UsageError(f"stream must be a file, True, False or None, not {arguments.short(stream)}.")
        prepare_logs(folder, ranks)
        shared.engines.share(folder, ranks)
        monitor = RunMonitor(
            shared.processes,
            shared.memory,
            number,
            folder,
            ranks,
            {rank: shared.folders.ending(number, rank) for rank in range(shared.size)},
            patience=terms.patience,
            end_after_patience=terms.end_after_patience,
            stream=shown,
            stream_limit=_NOTEBOOK_OUTPUT if _in_notebook() else None,
            launch_s=shared.launch_s,
            leave_after_crash=leave_after_crash,
            interrupt=self._releasing.release if _in_ipython() else None,
            logs_are_removed=log_dir is None,
            what=what,
        )
        weakref.finalize(monitor, shared.folders.forget, number).atexit = False  # dropping a run frees its files
        monitor.start(shared.engines, self._orders(order, ranks, terms, directory), payload, entries.run)
        self._faults.run_started()
        return shared.begun(monitor)

    def _orders(
        self, order: dict[str, Any], ranks: Sequence[int], terms: Terms, directory: str
    ) -> dict[int, dict[str, Any]]:
        """The order of each rank, with the holds and faults that are armed for it."""
        own = {"MASTER_PORT": str(self._ranks.new_port())}
        order |= {"fence": terms.fence, "directory": directory}
        holds, faults = self._breakpoints.hand_over(ranks), self._faults.hand_over(ranks)
        orders: dict[int, dict[str, Any]] = {}
        for rank in ranks:
            environment = {**order.get("environment", {}), **own, **self._faults.variables(rank)}
            orders[rank] = order | holds[rank] | {"faults": faults[rank], "environment": environment}
        return orders


def _in_ipython() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


def _in_notebook() -> bool:
    return _in_ipython() and type(sys.modules["IPython"].get_ipython()).__name__ == "ZMQInteractiveShell"
