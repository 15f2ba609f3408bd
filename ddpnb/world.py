"""The headless facade: launch a world of ranks, run scripts on them, look at them, end it."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TextIO

from ddpnb import comparison, orders
from ddpnb.analysis import phrases
from ddpnb.analysis.diagnosis import PATIENCE
from ddpnb.checkup import Checkup, examine
from ddpnb.cluster import devices as device_plan
from ddpnb.cluster.engines import Engines
from ddpnb.cluster.environment import ReservedPort, debug_environment, torchrun_environment
from ddpnb.cluster.folder import make_folder
from ddpnb.comparison import Comparison
from ddpnb.engine import wire
from ddpnb.errors import UsageError, WorldError
from ddpnb.hands import Hands
from ddpnb.hands.holding import Holding
from ddpnb.hands.injecting import Injection
from ddpnb.hands.startup import Startup
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.progress import Progress
from ddpnb.run import Run
from ddpnb.watch import Observer

FENCES = ("raise", "warn", "off")
_CLEAN_S = 5.0  # that a rank may take to end what a failed run has left; then its process is replaced
_NOTEBOOK_OUTPUT = 1 << 20  # bytes of output that a run shows in a notebook; the files hold all


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
    """Launch ``n`` ranks: engines bound to devices, with the environment that torchrun gives.

    Args:
        n: number of ranks.
        backend: ``nccl`` or ``gloo``; by default DDP_BACKEND, else NCCL where there are GPUs.
        devices: CUDA devices to use, in rank order.
        fence: what to do with a call that its peers made differently: ``raise``, ``warn``, ``off``.
        patience: seconds that a rank may be blocked outside of collectives before that is a finding.
        debug: set the debugging variables of torch and NCCL that are safe for the backend.
        port: MASTER_PORT; by default a free one, another for each run.
        timeout: seconds for the world to come up.
        quiet: show no progress.

    Raises:
        UsageError, DeviceError: the world that was asked for cannot be; nothing was started.
        LaunchError: it did not come up; everything that was started has been stopped.
    """
    if fence not in FENCES:
        raise UsageError(f"unknown fence {fence!r}.", f"Choose one of: {', '.join(FENCES)}.")
    if not patience > 0:
        raise UsageError(f"patience must be a positive number of seconds, not {patience!r}.")
    plan = device_plan.plan(n, backend, devices)
    if port is not None:
        ReservedPort(port).release()
    for warning in plan.warnings:
        print(f"ddpnb: warning: {warning}", file=sys.stderr)
    world = World(plan, fence=fence, patience=patience, debug=debug, port=port, quiet=quiet)
    world._start(timeout)
    return world


def doctor(n: int = 2, *, backend: str | None = None, timeout: float = 60.0, quiet: bool = False) -> Checkup:
    """The minimal test of a set-up: look at the machine, and make each step of start-up on ``n`` ranks of their own.

    Args:
        n: number of ranks; 1 tests a process alone.
        backend: as for ``launch``.
        timeout: seconds for each step.
        quiet: show no progress.

    Raises:
        UsageError, DeviceError, LaunchError: as ``launch``.
    """
    with launch(n, backend=backend, quiet=quiet) as world:
        return examine(world, timeout)


class World(Hands):
    """Live ranks. Use it as a context manager, or call ``close()``."""

    def __init__(
        self, plan: device_plan.Plan, *, fence: str, patience: float, debug: bool, port: int | None, quiet: bool
    ) -> None:
        self.plan = plan
        self.fence = fence
        self.patience = patience
        self.size = len(plan.devices)
        self.launch_s = 0.0
        self._debug = debug_environment(plan.backend) if debug else {}
        self._port = port
        self._ports: list[ReservedPort] = []
        self._quiet = quiet
        self._folder = make_folder()
        self._engines = Engines(self._folder)
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()  # who drops one frees what is known of it
        self._last: Run | None = None
        self._number = 0
        self._in_run: dict[int, Run] = {}  # the run that each rank's process was last in
        self._startup: Startup | None = None
        self._started_as = 0  # its number among the runs
        self._held: list[tuple[Holding, bool]] = []
        self._injected: list[tuple[Injection, bool, frozenset[int]]] = []
        self._lock = threading.RLock()
        self._closed = False
        open_worlds.add(self)

    # -- life

    def _start(self, timeout: float) -> None:
        began = time.monotonic()
        try:
            with Progress(f"starting {self.plan.description}", self.size, self._quiet) as progress:
                self._engines.progress = progress.update
                port = self._new_port()
                self._engines.start({rank: self._environment(rank, port) for rank in range(self.size)}, timeout)
        except BaseException:
            self.close()
            raise
        self.launch_s = time.monotonic() - began

    def _environment(self, rank: int, port: int) -> dict[str, str]:
        return {
            **torchrun_environment(rank, self.size, port),
            **self.plan.environment,
            **self._debug,
            "DDP_BACKEND": self.plan.backend,
            wire.FOLDER: self._folder,
            wire.DEVICE: self.plan.devices[rank],
            **({wire.BACKEND: self.plan.backend} if self.plan.chosen else {}),
        }

    def _new_port(self) -> int:
        for reserved in self._ports:
            reserved.release()
        self._ports = []
        if self._port is not None:
            return self._port
        self._ports = [ReservedPort()]
        return self._ports[0].port

    def close(self) -> None:
        """End all ranks and the controller, and remove the world's files. Logs in log_dir= stay."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for run in list(self._runs):
            run.stop_watching()
        self._engines.stop()
        for reserved in self._ports:
            reserved.release()
        shutil.rmtree(self._folder, ignore_errors=True)
        open_worlds.discard(self)

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._last.outcome if self._last is not None else "idle"
        return f"<World of {self.plan.description}: {state}>"

    # -- runs

    def run(
        self,
        target: str | os.PathLike[str] | Callable[..., Any],
        *args: Any,
        log_dir: str | os.PathLike[str] | None = None,
        stream: TextIO | bool | None = True,
        leave_after_crash: bool = False,
    ) -> Run:
        """Run a torchrun script, unmodified, or a function, on all ranks; returns at once.

        Args:
            target: path of a script, or a function.
            args: the script's arguments (taken as text), or the function's.
            log_dir: where each rank's output is kept whole (``rank0.log`` ...); by default with the
                world, for as long as it lives.
            stream: where to show the output, each line with its rank: True for standard output,
                False or None for nowhere.
            leave_after_crash: once a rank has failed, give the others no longer than ``patience``
                before the outcome is settled, as a launcher would that is about to end them.

        Raises:
            ScriptNotFound: there is no such script.
            WorldError: the world is closed, or ranks are still in an earlier run.
        """
        script = isinstance(target, (str, os.PathLike))
        order, payload = (
            (orders.of_script(target, args), None) if script else orders.of_function(target, args, self._folder)
        )
        with self._lock:
            self._check_open()
            self._check_free(range(self.size))
            if script:
                self._startup = None  # it begins without a group, and makes its own
            ranks = range(self.size)
            self._make_room(ranks)
            return self._start_run(order, payload, ranks, log_dir, stream, leave_after_crash)

    def execute(
        self,
        code: str,
        *,
        ranks: int | Iterable[int] | None = None,
        stream: TextIO | bool | None = True,
        name: str | None = None,
    ) -> Run:
        """Run lines of Python on ranks, among variables that live on from one call to the next; returns at once.

        It is what a notebook's cell is: a last expression is shown, the process group that earlier lines
        (or ``rebuild()``) have made is there, and so are the models.

        Args:
            code: the lines.
            ranks: which ranks; all by default. The others are not in this run: a collective waits for them.
            stream: as in ``run()``.
            name: what tracebacks and findings call these lines, such as ``In[3]``; by default ``cell3.py``,
                with the number of the run.

        Raises:
            UsageError: these lines are no Python, or that cannot be a name.
            WorldError: the world is closed, or one of these ranks is dead or still in an earlier run.
        """
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            order = orders.of_cell(code, self._folder, name or f"cell{self._number + 1}")
            self._make_room(chosen, cell=True)
            return self._start_run(order, None, chosen, None, stream, False)

    def _start_run(
        self,
        order: dict[str, Any],
        payload: bytes | None,
        ranks: Sequence[int],
        log_dir: str | os.PathLike[str] | None,
        stream: TextIO | bool | None,
        leave_after_crash: bool,
    ) -> Run:
        number = self._number = self._number + 1
        folder = os.path.abspath(log_dir) if log_dir is not None else os.path.join(self._folder, f"run{number}")
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write logs to {folder}: {error.strerror}.", "Choose another log_dir.") from None
        for rank in ranks:
            open(os.path.join(folder, f"rank{rank}.log"), "w").close()
        shown = sys.stdout if stream is True else (stream or None)
        run = Run(
            self._engines,
            self._folder,
            number,
            folder,
            ranks,
            self.size,
            patience=self.patience,
            stream=shown,
            stream_limit=_NOTEBOOK_OUTPUT if _in_notebook() else None,
            launch_s=self.launch_s,
            leave_after_crash=leave_after_crash,
            interrupt=self.release if _in_ipython() else None,
        )
        port = self._new_port()
        order |= {"fence": self.fence, "directory": os.getcwd()}
        armed = self._armed(ranks)
        own = {
            rank: armed[rank] | {"environment": {"MASTER_PORT": str(port), **self._variables(rank, port)}}
            for rank in ranks
        }
        run.start({rank: order | own[rank] for rank in ranks}, payload, wire.run)
        self._injected = [one for one in self._injected if one[1] or one[0].fault.description.place != "environment"]
        self._runs.add(run)
        self._last = run
        self._in_run.update(dict.fromkeys(ranks, run))
        return run

    def _busy(self) -> list[int]:
        in_run = [rank for rank, run in self._in_run.items() if run.is_in(rank)]
        return sorted({*in_run, *(self._startup.busy() if self._startup is not None else [])})

    def _make_room(self, ranks: Sequence[int], *, cell: bool = False) -> None:
        """Before a run: no rank may be in an earlier one; dead ones are replaced, and what a failed run left is ended."""
        self._check_free(ranks)
        for run in {self._in_run[rank] for rank in ranks if rank in self._in_run}:
            with contextlib.suppress(WorldError):  # that it failed was said to whoever waited for it
                run.wait(10)
        dead = [rank for rank in ranks if not self._alive(rank)]
        if dead and cell:
            raise WorldError(f"{phrases.ranks(dead, True)} is dead.", f"world.restart({dead[0]}) replaces it.")
        spoilt = self._spoilt()
        if not cell and spoilt:
            had_group = self._has_group()
            left = self._not_cleaned(spoilt)
            self.restart(left)  # with the group, if there was one
            if had_group and not left:
                self.rebuild()

    def _check_free(self, ranks: Iterable[int]) -> None:
        busy = [rank for rank in self._busy() if rank in ranks]
        if not busy:
            return
        run = self._in_run.get(busy[0])
        what = f"run {run.number} ({run.outcome})" if run is not None else "start-up"
        raise WorldError(
            f"{phrases.ranks(busy, True)} {phrases.verb(busy, 'is', 'are')} still in {what}.",
            "Look at it with world.snapshot(); world.release() frees these ranks, world.restart() replaces them.",
        )

    def _spoilt(self) -> list[int]:
        """Ranks that cannot serve another run as they are: dead, still in one, or left over from one that failed.

        A call that never completed would block the end of its process group.
        """
        return [
            rank
            for rank in range(self.size)
            if not self._alive(rank)
            or (
                (run := self._in_run.get(rank)) is not None
                and not (run.outcome in ("ok", "divergence") and run.left_clean(rank))
            )
        ]

    def restart(self, ranks: int | Iterable[int] | None = None, timeout: float = 60.0) -> None:
        """Replace the processes of these ranks (by default of all that are dead, hang, or are left from a failed run).

        A rank keeps its number, and gets a fresh process; the others are not touched. If the world has a group
        of its own (``init()``, ``rebuild()``), and no rank is in a run, it is rebuilt. Ranks that still wait
        for the one that is replaced must be released first for that.

        Raises:
            UsageError: there is no such rank.
            LaunchError: a new process did not come up; the others live on.
        """
        with self._lock:
            self._check_open()
            wanted = self._spoilt() if ranks is None else [ranks] if isinstance(ranks, int) else list(ranks)
            unknown = [rank for rank in wanted if rank not in range(self.size)]
            if unknown:
                raise UsageError(f"there is no rank {unknown[0]!r} in a world of {self.size}.")
            chosen = sorted(set(wanted))
            if not chosen:
                return
            for run in {self._in_run[rank] for rank in chosen if rank in self._in_run}:
                run.settle()
            port = self._new_port()
            with Progress(f"restarting rank {', '.join(map(str, chosen))}", len(chosen), self._quiet) as progress:
                self._engines.progress = progress.update
                self._engines.replace(chosen, {rank: self._environment(rank, port) for rank in chosen}, timeout)
            for rank in chosen:
                self._in_run.pop(rank, None)
            self._injected = [(one, keep, there - {*chosen}) for one, keep, there in self._injected]
            if self._startup is not None and self._startup.busy():
                for rank in chosen:
                    self._startup.replaced(rank)
            elif self._has_group() and not self._busy():
                self.rebuild()
            else:
                self._startup = None

    def _has_group(self) -> bool:
        """Whether the ranks have been given a process group that functions and cells find."""
        return self._startup is not None and all(
            self._startup.state.at(rank, "process group").state == "done" for rank in range(self.size)
        )

    def _look(self) -> Recording:
        if self._in_run and self._last is not None:
            taken = self._last.observer.record(ask=False)
            # One that was replaced since has a fresh process, of which that run knows nothing.
            return replace(
                taken, ranks={r: one if r in self._in_run else RankRecord(r) for r, one in taken.ranks.items()}
            )
        return Observer(self._engines, self._folder, dict.fromkeys(range(self.size), ""), 0).record(ask=False)

    def _asked(self, *, values: bool) -> Recording:
        with self._lock:
            self._check_open()
            if self._in_run and self._last is not None:
                return self._last.observer.record(values=values)
            return Observer(self._engines, self._folder, dict.fromkeys(range(self.size), ""), 0).record(values=values)

    @property
    def last_run(self) -> Run | None:
        """The run that was started last, if any."""
        return self._last

    @property
    def startup(self) -> Startup | None:
        """The start-up that was begun last, if no script has begun anew since."""
        return self._startup

    @property
    def closed(self) -> bool:
        """Whether its ranks have been ended."""
        return self._closed

    @property
    def processes(self) -> dict[int, tuple[int, bool]]:
        """rank -> its process, and whether that was in the last run: one that was replaced since knows nothing of it."""
        return {rank: (self._engines.pid(rank), rank in self._in_run) for rank in range(self.size)}

    def observer(self) -> Observer:
        """A look of one's own at the ranks, from outside and without asking them: it disturbs nobody."""
        run = self._last if self._in_run else None
        if run is not None:
            return run.another_observer()
        return Observer(self._engines, self._folder, dict.fromkeys(range(self.size), ""), 0)

    def compare(self, trace: bool = False) -> Comparison:
        """Compare the replicas on all ranks, tensor by tensor, exactly, without a collective.

        Works while ranks train, wait or hang. After a run whose models are gone, its last samples are
        compared instead (``Comparison.exact`` is False then).

        Args:
            trace: also follow one forward that all ranks are about to make, module by module, and say
                where it first differs. Needs a run that goes on.

        Raises:
            WorldError: the world is closed, or a rank does not answer.
        """
        with self._lock:
            self._check_open()
            alive = [rank for rank in range(self.size) if self._engines.exit_status(rank) is None]
            run = self._last
        found = comparison.compare(self._engines, alive, trace, moving=run is not None and not run.done)
        if found.compared or run is None:
            return found
        return comparison.of_recording(run.recording or run.observer.record(ask=False))

    def pids(self) -> list[int]:
        """The process of each rank, in rank order."""
        return [self._engines.pid(rank) for rank in range(self.size)]

    def _check_open(self) -> None:
        if self._closed:
            raise WorldError("this world is closed.", "Launch a new one: ddpnb.launch(n).")
        if not self._engines.controller_alive:
            raise WorldError(
                "the controller of this world has died; its ranks cannot be reached.",
                "Close the world (world.close()) and launch a new one.",
            )


def _in_ipython() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


def _in_notebook() -> bool:
    return _in_ipython() and type(sys.modules["IPython"].get_ipython()).__name__ == "ZMQInteractiveShell"


open_worlds: weakref.WeakSet[World] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for world in list(open_worlds):
        world.close()
