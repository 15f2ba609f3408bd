"""The API without widgets: launch ranks, run scripts on them, inspect them and end them."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from ddpnb.errors import WorldError
from ddpnb.ranks import devices as device_plan
from ddpnb.ranks.engines.early import Early
from ddpnb.ranks.rank_processes import OwnedRanks
from ddpnb.recording.interrupts import put_off
from ddpnb.world.doctor import Checkup, examine
from ddpnb.world.groups import GROUP_S, REBUILD_S, Groups
from ddpnb.world.live import LiveRanks
from ddpnb.world.ranks import OwnRanks
from ddpnb.world.replacement import START_S, Replacement
from ddpnb.world.restart import Restart, Restarted
from ddpnb.world.run import Run
from ddpnb.world.run_requests import Terms
from ddpnb.world.runs import Runs
from ddpnb.world.startup import Startup


class World(LiveRanks):
    """A set of live ranks, made by ``launch()``. Use it as a context manager, or call ``close()``.

    ``run()`` runs a script or function on all ranks, ``execute()`` code as a notebook cell does. While a run
    hangs, its ranks can be inspected (``status()``, ``snapshot()``, ``evaluate()``, ``diff()``, ``compare()``),
    held before collectives (``hold()``, ``step()``, ``resume()``) and interrupted (``release()``).

    Example:
        >>> with ddpnb.launch(4) as world:
        ...     run = world.run("train.py").wait()
        ...     print(run.diagnosis)
    """

    def __init__(
        self,
        plan: device_plan.Plan,
        processes: OwnedRanks,
        early: Early,
        *,
        fence: str,
        patience: float,
        end_after_patience: bool = False,
        port: int | None,
        quiet: bool,
    ) -> None:
        ranks = OwnRanks(plan, processes, early, port=port, quiet=quiet)
        super().__init__(ranks)
        self._own = ranks
        replacement = Replacement(ranks, self._faults)
        self._groups = Groups(ranks, self._breakpoints, self._faults, replacement, self._releasing, fence)
        self._restart = Restart(ranks, replacement, self._groups, self._releasing)
        terms = Terms(fence, patience, end_after_patience)
        self._runs = Runs(ranks, self._breakpoints, self._faults, self._releasing, self._restart, terms)
        open_worlds.add(self)

    def _start(self, timeout: float) -> None:
        """Start the ranks.

        Raises:
            LaunchError: a process did not start; the others are ended by ``close()``.
        """
        self._own.start(timeout)

    def _examine(self, timeout: float) -> Checkup:
        """Check the setup of the ranks, which are new: see ``doctor()``."""
        return examine(self._own, self._groups, self._releasing, timeout)

    # -- what it is

    @property
    def fence(self) -> str:
        """What happens on mismatched collectives: ``raise``, ``warn`` or ``off``. ``run(fence=)`` overrides it."""
        return self._runs.terms.fence

    @property
    def patience(self) -> float:
        """Seconds that a rank may be blocked outside any collective. ``run(patience=)`` overrides it."""
        return self._runs.terms.patience

    @property
    def launch_s(self) -> float:
        """How long the launch took, in seconds."""
        return self._own.launch_s

    # -- runs

    def run(
        self,
        target: str | os.PathLike[str] | Callable[..., Any],
        *args: Any,
        log_dir: str | os.PathLike[str] | None = None,
        stream: TextIO | bool | None = True,
        leave_after_crash: bool = False,
        fence: str | None = None,
        patience: float | None = None,
        end_after_patience: bool | None = None,
        fresh: bool = False,
    ) -> Run:
        """Run a torchrun script, unmodified, or a function, on all ranks; returns at once.

        A script begins in a fresh state. Functions and cells share the live state of the ranks, until a script,
        ``rebuild()`` or ``restart()``: the process group (an own ``init_process_group`` replaces it), models, and
        variables. A function of the notebook sees the variables of cells on the ranks, unless the notebook defines
        the same name; what it declares ``global`` stays there. Modules are imported again after an edit, and
        unseeded random numbers are fresh in each run.

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
            patience, end_after_patience: as for ``launch()``, for this run only; by default those of the World.
            fresh: give all ranks new processes first, as ``restart()`` does: for a script that does what a process can
                do only once. The variables and models in the old ones are gone.

        Returns:
            The run, which is in progress.

        Raises:
            ScriptNotFound: the script does not exist.
            UsageError: unknown fence, or an invalid number of seconds.
            WorldError: the World is closed, or ranks are still in an earlier run.
            LaunchError: ``fresh``: a new process did not start.

        Example:
            >>> world.run("train.py", "--steps", "20").wait().outcome
            'ok'
        """
        return self._runs.run(
            target,
            args,
            log_dir=log_dir,
            stream=stream,
            leave_after_crash=leave_after_crash,
            fence=fence,
            patience=patience,
            end_after_patience=end_after_patience,
            fresh=fresh,
        )

    def execute(
        self,
        code: str,
        *,
        ranks: int | Iterable[int] | None = None,
        stream: TextIO | bool | None = True,
        name: str | None = None,
    ) -> Run:
        """Run Python code on ranks as a notebook cell; variables are kept between calls. Returns at once.

        The value of a last expression is printed, unless it ends with a semicolon; of figures and tables, their text
        (``%%ddp`` shows them). The process group, models and variables of earlier cells and
        functions (or the group of ``rebuild()``) are available.

        Args:
            code: Python source.
            ranks: which ranks; all by default. The others are not in this run: collectives wait for them.
            stream: as for ``run()``.
            name: file name in tracebacks and findings, such as ``In[3]``; by default ``cell3.py``, with the
                number of the run.

        Returns:
            The run, which is in progress.

        Raises:
            UsageError: invalid Python syntax, or an invalid name.
            WorldError: the World is closed, or one of these ranks is dead or still in an earlier run.

        Example:
            >>> world.execute("import os; os.environ['RANK']", ranks=1).wait()
            [rank 1] '1'
        """
        return self._runs.execute(code, ranks, stream, name)

    # -- start-up, release, restart

    def init(self, timeout: float = GROUP_S) -> Startup:
        """Begin a start-up in steps, from the environment to the first optimizer step; you decide when each runs.

        Functions and cells use the resulting process group; a script creates its own.

        Args:
            timeout: time-out of the store and of the process group, in seconds.

        Returns:
            The start-up, with ``step()`` and ``run()``; ``world.startup`` is the same object.

        Raises:
            UsageError: ``timeout`` is no number of seconds.
            WorldError: the World is closed, or a rank is dead or in a run.
            CannotWrite: no space for the logs.

        Example:
            >>> startup = world.init()
            >>> startup.step(ranks=0).state.at(0, "environment").state
            'done'
        """
        return self._groups.init(timeout)

    def rebuild(self, timeout: float = REBUILD_S) -> Startup:
        """Create a new process group in the same processes, after a release or at any other time.

        Models of functions and cells that are wrapped in ``DistributedDataParallel`` on the default group use the new
        one. What else used the old groups must be made again: sub-groups of ``new_group()``, device meshes and what
        they shard, optimizers and other objects that hold a group. The result names them.

        Args:
            timeout: seconds to wait at most.

        Returns:
            The start-up that created the group; its text says which models use it and what must be made again.

        Raises:
            UsageError: ``timeout`` is no number of seconds.
            WorldError: a rank is dead or in a run, or the group could not be created.

        Example:
            >>> world.release()
            ranks 0 and 1 are released (0.21 s).
            >>> world.rebuild()
        """
        return self._groups.rebuild(timeout)

    def restart(self, ranks: int | Iterable[int] | None = None, timeout: float = START_S) -> Restarted:
        """Replace the processes of these ranks. The variables and models in them are gone.

        A rank keeps its number and gets a new process; the processes, variables and models of the other ranks are
        kept. If they are idle and had a process group of all ranks, it is created again with the new ones.

        Args:
            ranks: which ranks; by default those that are dead or stopped, after the release of others that wait for
                them in vain. If none is dead or stopped, those that are in a run or wait in a start-up step: try
                ``release()`` first, which keeps their variables.
            timeout: seconds to wait at most for a new process.

        Returns:
            The ranks that have new processes, and what became of the others and of the process group.

        Raises:
            UsageError: unknown rank.
            LaunchError: a new process did not start; the other ranks are not affected.

        Example:
            >>> world.restart(2)
            Rank 2 has a new process: its variables and models are gone.
            Ranks 0, 1 and 3 keep their processes, variables and models.
            The process group was created again on ranks 0-3 (gloo).
        """
        return self._restart.restart(ranks, timeout)

    # -- life

    @put_off()
    def close(self) -> None:
        """End all ranks and the controller, and remove the temporary files. Logs in ``log_dir=`` are kept.

        Does nothing in a forked child of the launcher, which does not own the World. If another thread is
        restarting or releasing ranks, it has a few seconds to finish.

        Raises:
            WorldError: a process did not end.

        Example:
            >>> world.close()
            >>> world.closed
            True
        """
        if self._own.engines.owned:
            try:
                self._own.close()
            finally:
                open_worlds.discard(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.last_run.outcome if self.last_run is not None else "idle"
        return f"<World of {self._ranks.description}: {state}>"


open_worlds: weakref.WeakSet[World] = weakref.WeakSet()


def _forked() -> None:
    """In a forked child: no thread would release the locks."""
    for world in list(open_worlds):
        world._ranks.lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)


@atexit.register
def _close_all() -> None:
    for world in list(open_worlds):
        try:
            world.close()
        except WorldError as error:
            print(f"ddpnb: {error}", file=sys.stderr)
