"""The API without widgets: launch ranks, run scripts on them, inspect them and end them."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, TextIO

from ddpnb import arguments
from ddpnb.control import run_requests
from ddpnb.control.breakpoints import Breakpoints, Holding
from ddpnb.control.comparison import Comparison
from ddpnb.control.doctor import Checkup, examine
from ddpnb.control.faults import Faults, Injection
from ddpnb.control.groups import GROUP_S, REBUILD_S, RELEASE_S, Groups
from ddpnb.control.inspection import Inspection
from ddpnb.control.ranks import Ranks
from ddpnb.control.release import Freed
from ddpnb.control.replacement import START_S, Replacement
from ddpnb.control.restart import Restart
from ddpnb.control.results import Evaluations, FrameDiff, WorldStatus
from ddpnb.control.run import Run
from ddpnb.control.runs import Runs
from ddpnb.control.startup import Startup
from ddpnb.diagnosis.diagnose import PATIENCE
from ddpnb.errors import WorldError
from ddpnb.files import check_writable
from ddpnb.interrupts import put_off
from ddpnb.model.faults import Fault
from ddpnb.model.holds import Hold
from ddpnb.model.recording import Recording
from ddpnb.processes import devices as device_plan
from ddpnb.processes.engines.engines import Engines
from ddpnb.processes.environment import ReservedPort, working_directory


def launch(
    n: int,
    *,
    backend: str | None = None,
    devices: Sequence[int] | None = None,
    fence: str = "raise",
    patience: float = PATIENCE,
    debug: bool = False,
    port: int | None = None,
    timeout: float = 60.0,
    quiet: bool = False,
) -> World:
    """Launch ``n`` ranks, each a process with its own device and the environment variables that torchrun sets.

    Args:
        n: number of ranks.
        backend: ``nccl`` or ``gloo``; by default DDP_BACKEND, else NCCL where there are GPUs.
        devices: CUDA devices to use, in rank order.
        fence: what to do when ranks issue mismatched collectives: ``raise``, ``warn`` or ``off`` (no check).
        patience: seconds that a rank may be blocked outside any collective before it is reported as a hang.
        debug: set the debugging variables of torch and NCCL that are safe for the backend.
        port: MASTER_PORT; by default a free port, chosen for each run.
        timeout: seconds to wait for all ranks to start.
        quiet: show no progress.

    Returns:
        The World, with all ranks idle.

    Raises:
        UsageError, DeviceError: invalid arguments; nothing was started.
        LaunchError: a process did not start; all others have been stopped.

    Example:
        >>> world = ddpnb.launch(4)
        >>> world.run("train.py").wait().outcome
        'ok'
    """
    run_requests.check_terms(fence, patience)
    timeout = arguments.seconds("timeout", timeout)
    working_directory()
    plan = device_plan.plan(n, backend, devices)
    if port is not None:
        arguments.whole("port", port, 1, 65535)
        ReservedPort(port).release()
    for warning in plan.warnings:
        print(f"ddpnb: warning: {warning}", file=sys.stderr)
    world = World(plan, fence=fence, patience=patience, debug=debug, port=port, quiet=quiet)
    try:
        world._ranks.start(timeout)
    except BaseException:
        with contextlib.suppress(WorldError):  # the reason why the launch failed is the error to report
            world.close()
        raise
    return world


def doctor(n: int = 2, *, backend: str | None = None, timeout: float = 60.0, quiet: bool = False) -> Checkup:
    """Check the distributed setup without training code: the machine, then each start-up step on ``n`` new ranks.

    Args:
        n: number of ranks; 1 checks a single process.
        backend: as for ``launch``.
        timeout: seconds for each step.
        quiet: show no progress.

    Returns:
        The result of each check and step; ``outcome`` is ``ok``, ``hang`` or ``crash``.

    Raises:
        UsageError, DeviceError, LaunchError: as ``launch``.

    Example:
        >>> print(ddpnb.doctor(2).headline)
        OK: all 11 start-up steps succeeded on 2 ranks
    """
    arguments.seconds("timeout", timeout)
    with launch(n, backend=backend, quiet=quiet) as world:
        return examine(world._ranks, world._groups, timeout)


class World:
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
        self, plan: device_plan.Plan, *, fence: str, patience: float, debug: bool, port: int | None, quiet: bool
    ) -> None:
        # Panels and magics use these parts; users call the methods below.
        self._ranks = ranks = Ranks(plan, Engines, debug=debug, port=port, quiet=quiet)
        self._inspection = Inspection(ranks)
        self._breakpoints = Breakpoints(ranks, self._inspection)
        self._faults = Faults(ranks)
        replacement = Replacement(ranks, self._faults)
        self._groups = Groups(ranks, self._breakpoints, self._faults, replacement, fence)
        self._restart = Restart(ranks, replacement, self._groups)
        self._runs = Runs(ranks, self._breakpoints, self._faults, self._groups, self._restart, fence, patience)
        open_worlds.add(self)

    # -- what it is

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._ranks.size

    @property
    def fence(self) -> str:
        """What happens on mismatched collectives: ``raise``, ``warn`` or ``off``. ``run(fence=)`` overrides it."""
        return self._runs.fence

    @property
    def patience(self) -> float:
        """Seconds that a rank may be blocked outside any collective. ``run(patience=)`` overrides it."""
        return self._runs.patience

    @property
    def launch_s(self) -> float:
        """How long the launch took, in seconds."""
        return self._ranks.launch_s

    @property
    def closed(self) -> bool:
        """Whether ``close()`` has been called."""
        return self._ranks.closed

    @property
    def last_run(self) -> Run | None:
        """The last run that was started; None if there was none."""
        return self._ranks.last_run

    @property
    def startup(self) -> Startup | None:
        """The last start-up in steps (see ``init()``); None if there was none, or a script has run since."""
        return self._ranks.startup

    def pids(self) -> list[int]:
        """The process of each rank.

        Returns:
            Process IDs, in rank order.

        Example:
            >>> world.pids()
            [4711, 4712]
        """
        return [self._ranks.processes.pid(rank) for rank in range(self.size)]

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
            patience: as for ``launch()``, for this run only; by default that of the World.

        Returns:
            The run, which is in progress.

        Raises:
            ScriptNotFound: the script does not exist.
            UsageError: unknown fence, or an invalid number of seconds.
            WorldError: the World is closed, or ranks are still in an earlier run.

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

        The value of a last expression is printed. The process group, models and variables of earlier cells and
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

    # -- looks

    def status(self) -> WorldStatus:
        """What every rank is doing, one line per rank.

        Returns:
            A table; ``status[rank].state`` is one word.

        Raises:
            WorldError: the World is closed.

        Example:
            >>> world.status()[1].state
            'waiting'
        """
        return self._inspection.status()

    def snapshot(self) -> Recording:
        """Record this moment: events, calls in flight, and stacks with the locals of user frames.

        Returns:
            A Recording, which ``ddpnb.diagnose()`` and ``ddpnb.show()`` take.

        Raises:
            WorldError: the World is closed.

        Example:
            >>> ddpnb.diagnose(world.snapshot()).outcome
            'hang'
        """
        return self._inspection.snapshot()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Recording of this moment to a file: see ``Recording.save()``. ``ddpnb.load()`` reads it.

        Args:
            path: a file that does not exist yet, or is replaced.

        Raises:
            UsageError: the file could not be written there.
            CannotWrite: the disk is full.

        Example:
            >>> world.save("hang.ddpnb")
        """
        check_writable(path)
        self.snapshot().save(path)

    def evaluate(
        self, expression: str, *, ranks: int | Iterable[int] | None = None, frame: int = 0, timeout: float = 5.0
    ) -> Evaluations:
        """Evaluate an expression on ranks: in the current user frame, or on idle ranks with the variables of cells.

        Args:
            expression: Python; it runs on the rank, with all its side effects.
            ranks: which ranks; by default all that are alive.
            frame: 0 for the innermost user frame, 1 for its caller, ...
            timeout: seconds to wait for the result; after that the evaluation continues in its own thread.

        Returns:
            rank -> ``Evaluation``, with the text and, for plain Python objects, the value.

        Raises:
            UsageError: not a valid expression, or an unknown rank.
            WorldError: the World is closed, or one of these ranks is dead.

        Example:
            >>> world.evaluate("loss.item()").values_by_rank
            {0: 0.25, 1: 0.31}
        """
        return self._inspection.evaluate(expression, ranks, frame, timeout)

    def diff(self, frame: int = 0) -> FrameDiff:
        """Compare the variables of the same frame on all ranks, side by side.

        Args:
            frame: 0 for the innermost function that most ranks are in, 1 for its caller, ...

        Returns:
            A table; ``differing`` has the variables that differ.

        Raises:
            UsageError: ``frame`` is not a whole number.
            WorldError: the World is closed.

        Example:
            >>> world.diff().differing
            {'step': {0: '4', 1: '3'}}
        """
        return self._inspection.diff(frame)

    def compare(self, trace: bool = False) -> Comparison:
        """Compare the replicas on all ranks, tensor by tensor, exactly, without a collective.

        Works while ranks train, wait or hang. If the models no longer exist, the last samples of the run are
        compared (``Comparison.exact`` is then False).

        Args:
            trace: also trace the next forward of all ranks, module by module, and report where it first
                differs. Needs a run in progress.

        Returns:
            The tensors that differ, on which ranks, and by how much. It is true if none differs.

        Raises:
            WorldError: the World is closed, or a rank is unresponsive.

        Example:
            >>> print(world.compare())
            1 of 4 tensors differ
              0.weight: ranks 0, 2 and 3 | rank 1; largest difference 0.125
        """
        return self._inspection.compare(trace=trace)

    # -- hold and step

    def hold(
        self,
        before: str | Iterable[str] = (),
        *,
        ranks: int | Iterable[int] | None = None,
        seq: int | None = None,
        site: str = "",
        group: str = "",
        when: str = "",
        keep: bool = False,
    ) -> Holding:
        """Stop ranks before a collective: the next one, or the next that matches all conditions.

        Variables of a held rank can be read and expressions evaluated in its frames. While a hold is armed, the
        time-outs of the process groups are suspended for new calls. A hold ends with the current run, or with
        the next run if none is in progress.

        Args:
            before: operation or operations, named as in findings: ``"all_reduce"``.
            ranks: which ranks; all by default.
            seq: sequence number of the call in its group, from 1: ``all_reduce #5`` is ``seq=5``.
            site: ``"train.py"``, ``"train.py:91"`` or the name of a function.
            group: label, name or members (``"0,2"``) of a process group.
            when: an expression, evaluated in the frame that issues the call: ``"step == 5"``.
            keep: stay armed for later runs too.

        Returns:
            The armed hold, with ``wait()`` and ``remove()``.

        Raises:
            UsageError: an unknown rank or operation, or an invalid expression.
            WorldError: a rank is dead or unresponsive.

        Example:
            >>> world.hold("all_reduce", when="step == 5").wait(30)
        """
        hold = Hold(arguments.texts("before", before), seq, site, group, when)
        return self._breakpoints.hold(hold, ranks, keep=keep)

    def step(self, n: int = 1, *, ranks: int | Iterable[int] | None = None, timeout: float = 5.0) -> WorldStatus:
        """Let held ranks issue ``n`` collectives, and stop them before the next one.

        Args:
            n: number of calls per rank.
            ranks: which ranks; all that are held by default.
            timeout: seconds to wait at most until they are held again, have ended, or wait for other ranks.

        Returns:
            What every rank is doing then.

        Raises:
            UsageError: ``n`` is not a positive number, or an unknown rank.
            WorldError: none of these ranks is held.

        Example:
            >>> world.step(ranks=1).held
            (0, 1)
        """
        return self._breakpoints.step(n, ranks, timeout)

    def resume(self, ranks: int | Iterable[int] | None = None) -> None:
        """Let held ranks continue until a hold matches again.

        Args:
            ranks: which ranks; all by default.

        Raises:
            UsageError: unknown rank.
            WorldError: the World is closed, or a rank is dead or unresponsive.

        Example:
            >>> world.resume()
        """
        self._breakpoints.resume(ranks)

    # -- faults

    def inject(
        self, fault: str | Fault, *, ranks: int | Iterable[int] | None = None, keep: bool = False, **given: Any
    ) -> Injection:
        """Arm a fault on ranks: at a collective, in the environment, in the data or in the model.

        It applies to the current run, or else to the next one, and ends with it. A fault of the environment
        applies to the next start-up: of a script, of ``init()``, or of a repeated step of it.

        Args:
            fault: name of a kind (``ddpnb.model.faults.KINDS`` lists them), or a ``Fault``.
            ranks: which ranks; all by default.
            keep: stay armed for later runs too.
            given: its conditions (``op``, ``seq``, ``site``, ``group``, ``step``, ``probability``, ``seed``,
                ``times``), and parameters of its kind.

        Returns:
            The armed fault, with ``finding`` and ``heal()``.

        Raises:
            UsageError: unknown kind, condition, parameter, operation or rank.
            WorldError: a rank is dead or unresponsive.

        Example:
            >>> world.inject("skip", ranks=1, op="all_reduce", seq=3).finding
            'DDP301'
        """
        return self._faults.inject(fault, ranks, keep=keep, conditions=given)

    def heal(self, injection: Injection | None = None) -> None:
        """Disarm one fault, or all. Effects that already happened stay: a changed parameter is not restored.

        Unresponsive ranks keep their faults until they are restarted.

        Args:
            injection: what ``inject()`` returned; None: all faults.

        Raises:
            UsageError: anything else.
            WorldError: the World is closed.

        Example:
            >>> world.heal()
        """
        self._faults.heal(injection)

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
        one.
        Create groups of ``new_group()`` again.

        Args:
            timeout: seconds to wait at most.

        Returns:
            The start-up that created the group.

        Raises:
            UsageError: ``timeout`` is no number of seconds.
            WorldError: a rank is dead or in a run, or the group could not be created.

        Example:
            >>> world.release()
            ranks 0 and 1 are released (0.21 s).
            >>> world.rebuild()
        """
        return self._groups.rebuild(timeout)

    def release(self, timeout: float = RELEASE_S) -> Freed:
        """Interrupt ranks that hang, wait, are held or compute: the exception ``Released`` ends what they run.

        Their processes, variables and models are kept. Their process group is closed: ``rebuild()`` creates a new one.

        Args:
            timeout: seconds to wait at most.

        Returns:
            The ranks that are idle again, and why others are not.

        Raises:
            UsageError: ``timeout`` is no number of seconds.
            WorldError: the World is closed, or its controller does not run.

        Example:
            >>> world.release().ranks
            (0, 1, 2, 3)
        """
        return self._groups.release(timeout)

    def restart(self, ranks: int | Iterable[int] | None = None, timeout: float = START_S) -> None:
        """Replace the processes of these ranks.

        A rank keeps its number and gets a new process; the processes and variables of the other ranks are kept. If
        the World has its own process group (``init()``, ``rebuild()``) and no rank is in a run, the group is rebuilt;
        a group of functions or cells is destroyed. Release ranks that still wait for a replaced rank first.

        Args:
            ranks: which ranks; by default all that are dead, stopped, hanging, or left from a failed run. If
                there are none, those that wait in a start-up step.
            timeout: seconds to wait at most for a new process.

        Raises:
            UsageError: unknown rank.
            LaunchError: a new process did not start; the other ranks are not affected.

        Example:
            >>> world.restart(2)
        """
        self._restart.restart(ranks, timeout)

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
        if self._ranks.processes.owned:
            try:
                self._ranks.close()
            finally:
                open_worlds.discard(self)

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.last_run.outcome if self.last_run is not None else "idle"
        return f"<World of {self._ranks.plan.description}: {state}>"


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
