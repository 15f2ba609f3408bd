"""The API without widgets: launch ranks, run scripts on them, inspect them and end them."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from types import TracebackType

from ddpnb import arguments
from ddpnb.control import Hands, run_requests
from ddpnb.control.breakpoints import Holding
from ddpnb.control.doctor import Checkup, examine
from ddpnb.control.faults import Injection
from ddpnb.control.run import Run
from ddpnb.control.startup import Startup
from ddpnb.diagnosis.diagnose import PATIENCE
from ddpnb.errors import WorldError
from ddpnb.interrupts import put_off
from ddpnb.processes import devices as device_plan
from ddpnb.processes.engines.engines import Engines
from ddpnb.processes.environment import ReservedPort, debug_environment, torchrun_environment, working_directory
from ddpnb.processes.exit_reasons import cannot_start
from ddpnb.processes.folder import Folders
from ddpnb.progress import Progress
from ddpnb.recorder import protocol

_LOCK_S = 5.0  # how long close() waits for another thread that uses the ranks


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

    Raises:
        UsageError, DeviceError: invalid arguments; nothing was started.
        LaunchError: a process did not start; all others have been stopped.
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
    world._start(timeout)
    return world


def doctor(n: int = 2, *, backend: str | None = None, timeout: float = 60.0, quiet: bool = False) -> Checkup:
    """Check the distributed setup without training code: the machine, then each start-up step on ``n`` new ranks.

    Args:
        n: number of ranks; 1 checks a single process.
        backend: as for ``launch``.
        timeout: seconds for each step.
        quiet: show no progress.

    Raises:
        UsageError, DeviceError, LaunchError: as ``launch``.
    """
    arguments.seconds("timeout", timeout)
    with launch(n, backend=backend, quiet=quiet) as world:
        return examine(world, timeout)


class World(Hands):
    """A set of live ranks, made by ``launch``. Use it as a context manager, or call ``close()``.

    ``run()`` runs a script or function on all ranks, ``execute()`` code as a notebook cell does. While a run
    hangs, its ranks can be inspected (``status()``, ``snapshot()``, ``evaluate()``, ``diff()``, ``compare()``),
    held before collectives (``hold()``, ``step()``, ``resume()``) and interrupted (``release()``).
    """

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
        with contextlib.ExitStack() as undo:
            self._unused = ReservedPort()  # for faults: no store listens on this port
            undo.callback(self._unused.release)
            self._folders = Folders(self.size)
            undo.callback(self._folders.remove)
            self._engines = self._new_engines()
            undo.pop_all()
        self._folder = self._folders.memory
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()  # dropping a Run frees its files
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

    def _new_engines(self) -> Engines:
        try:
            return Engines(self._folders.output)
        except (OSError, RuntimeError) as error:
            raise cannot_start(error) from None

    def _start(self, timeout: float) -> None:
        began = time.monotonic()
        try:
            with Progress(f"starting {self.plan.description}", self.size, self._quiet) as progress:
                self._engines.progress = progress.update
                port = self._new_port()
                self._engines.start({rank: self._environment(rank, port) for rank in range(self.size)}, timeout)
        except BaseException:
            with contextlib.suppress(WorldError):  # the reason why the launch failed is the error to report
                self.close()
            raise
        self.launch_s = time.monotonic() - began

    def _environment(self, rank: int, port: int) -> dict[str, str]:
        return {
            **torchrun_environment(rank, self.size, port),
            **self.plan.environment,
            **self._debug,
            "DDP_BACKEND": self.plan.backend,
            protocol.FOLDER: self._folder,
            protocol.DEVICE: self.plan.devices[rank],
            **({protocol.BACKEND: self.plan.backend} if self.plan.chosen else {}),
        }

    def _new_port(self) -> int:
        for reserved in self._ports:
            reserved.release()
        self._ports = []
        if self._port is not None:
            return self._port
        self._ports = [ReservedPort()]
        return self._ports[0].port

    @put_off()
    def close(self) -> None:
        """End all ranks and the controller, and remove the temporary files. Logs in ``log_dir=`` are kept.

        Does nothing in a forked child of the launcher, which does not own the World. If another thread is
        restarting or releasing ranks, it has a few seconds to finish.

        Raises:
            WorldError: a process did not end.
        """
        if not self._engines.owned:
            return
        free = self._lock.acquire(timeout=_LOCK_S)
        try:
            if self._closed:
                return
            self._closed = True
        finally:
            if free:
                self._lock.release()
        for run in list(self._runs):
            run.stop_watching()
        try:
            self._engines.stop()
        finally:
            for reserved in (*self._ports, self._unused):
                reserved.release()
            self._folders.remove()
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

    @property
    def closed(self) -> bool:
        """Whether ``close()`` has been called."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise WorldError("this world is closed.", "Launch a new one: ddpnb.launch(n).")
        self._engines.check_connection()


open_worlds: weakref.WeakSet[World] = weakref.WeakSet()


def _forked() -> None:
    """In a forked child: no thread would release the locks."""
    for world in list(open_worlds):
        world._lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)


@atexit.register
def _close_all() -> None:
    for world in list(open_worlds):
        try:
            world.close()
        except WorldError as error:
            print(f"ddpnb: {error}", file=sys.stderr)
