"""Runs: a script, a function or the lines of a cell, on the ranks."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from ddpnb import arguments
from ddpnb.control import run_requests
from ddpnb.control.restart import Replaces
from ddpnb.control.run import Run
from ddpnb.errors import UsageError
from ddpnb.observe import logs
from ddpnb.processes.environment import working_directory
from ddpnb.recorder import protocol

_NOTEBOOK_OUTPUT = 1 << 20  # bytes of output that a run shows in a notebook; the files hold all


class Runs(Replaces):
    """The part of ``World`` that runs code."""

    launch_s: float
    fence: str
    patience: float
    _runs: weakref.WeakSet[Run]  # dropping a Run frees its files

    def run(
        self,
        target: str | os.PathLike[str] | Callable[..., Any],
        *args: Any,
        log_dir: str | os.PathLike[str] | None = None,
        stream: TextIO | bool | None = True,
        leave_after_crash: bool = False,
        fence: str | None = None,
        patience: float | None = None,
    ) -> Run:
        """Run a torchrun script, unmodified, or a function, on all ranks; returns at once.

        Args:
            target: path of a script, or a function.
            args: the script's arguments (taken as text), or the function's.
            log_dir: folder for the complete output of each rank (``rank0.log`` ...); by default a temporary
                folder that exists as long as the World is open and you keep the ``Run``. Existing logs are
                renamed to ``rank0.log.1`` ...
            stream: where to print the output, each line with its rank: True for standard output,
                False or None for no output.
            leave_after_crash: when a rank has failed, wait no longer than ``patience`` for the others
                before the outcome is fixed.
            fence: as for ``launch()``, for this run only; by default that of the World.
            patience: as for ``launch()``, for this run only; by default that of the World.

        Raises:
            ScriptNotFound: the script does not exist.
            UsageError: unknown fence, or an invalid number of seconds.
            WorldError: the World is closed, or ranks are still in an earlier run.
        """
        script = isinstance(target, (str, os.PathLike))
        terms = self.fence if fence is None else fence, self.patience if patience is None else patience
        run_requests.check_terms(*terms)
        order, payload = (
            (run_requests.of_script(target, args), None)
            if script
            else run_requests.of_function(target, args, self._folders.output)
        )
        with self._lock:
            self._check_open()
            self._check_free(range(self.size))
            if script:
                self._startup = None  # it begins without a group, and makes its own
            ranks = range(self.size)
            self._make_room(ranks)
            return self._start_run(order, payload, ranks, log_dir, stream, leave_after_crash, terms)

    def execute(
        self,
        code: str,
        *,
        ranks: int | Iterable[int] | None = None,
        stream: TextIO | bool | None = True,
        name: str | None = None,
    ) -> Run:
        """Run Python code on ranks as a notebook cell; variables are kept between calls. Returns immediately.

        The value of a last expression is printed. The process group and the models of earlier code (or of
        ``rebuild()``) are available.

        Args:
            code: Python source.
            ranks: which ranks; all by default. The others are not in this run: collectives wait for them.
            stream: as in ``run()``.
            name: file name in tracebacks and findings, such as ``In[3]``; by default ``cell3.py``, with the
                number of the run.

        Raises:
            UsageError: invalid Python syntax, or an invalid name.
            WorldError: the World is closed, or one of these ranks is dead or still in an earlier run.
        """
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            name = name if name is not None else f"cell{self._number + 1}"
            order = run_requests.of_cell(code, self._folders.output, name)
            self._make_room(chosen, cell=True)
            return self._start_run(order, None, chosen, None, stream, False, (self.fence, self.patience))

    def _start_run(
        self,
        order: dict[str, Any],
        payload: bytes | None,
        ranks: Sequence[int],
        log_dir: str | os.PathLike[str] | None,
        stream: TextIO | bool | None,
        leave_after_crash: bool,
        terms: tuple[str, float],
    ) -> Run:
        fence, patience = terms
        directory = working_directory()
        if log_dir is not None and not isinstance(log_dir, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"log_dir must be the path of a folder, not {arguments.short(log_dir)}.")
        number = self._number = self._number + 1
        folder = os.path.abspath(log_dir) if log_dir is not None else self._folders.log_dir(number)
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
        run = Run(
            self._engines,
            self._folder,
            number,
            folder,
            ranks,
            {rank: self._folders.ending(number, rank) for rank in range(self.size)},
            patience=patience,
            stream=shown,
            stream_limit=_NOTEBOOK_OUTPUT if _in_notebook() else None,
            launch_s=self.launch_s,
            leave_after_crash=leave_after_crash,
            interrupt=self.release if _in_ipython() else None,
            logs_are_removed=log_dir is None,
        )
        weakref.finalize(run, self._folders.forget, number).atexit = False
        port = self._new_port()
        order |= {"fence": fence, "directory": directory}
        armed = self._armed(ranks)
        own = {
            rank: armed[rank] | {"environment": {"MASTER_PORT": str(port), **self._variables(rank)}} for rank in ranks
        }
        run.start({rank: order | own[rank] for rank in ranks}, payload, protocol.run)
        self._injected = [one for one in self._injected if one[1] or one[0].fault.description.place != "environment"]
        self._runs.add(run)
        self._last = run
        self._in_run.update(dict.fromkeys(ranks, run))
        return run

    @property
    def last_run(self) -> Run | None:
        """The last run that was started, or None."""
        return self._last


def _in_ipython() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


def _in_notebook() -> bool:
    return _in_ipython() and type(sys.modules["IPython"].get_ipython()).__name__ == "ZMQInteractiveShell"
