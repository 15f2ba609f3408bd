"""Launches ranks: their processes are started before the launcher imports what it needs to use them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ddpnb.errors import UsageError, WorldError
from ddpnb.ranks import devices as device_plan
from ddpnb.ranks.engines.early import Early
from ddpnb.ranks.environment import ReservedPort, working_directory
from ddpnb.ranks.forks import imports_for
from ddpnb.recording import arguments
from ddpnb.recording.facts.patience import PATIENCE
from ddpnb.recording.interrupts import put_off
from ddpnb.texts import printable
from ddpnb.world import run_requests

if TYPE_CHECKING:
    import ipyparallel

    from ddpnb.world.doctor import Checkup
    from ddpnb.world.world import World


def launch(
    n: int,
    *,
    backend: str | None = None,
    devices: Sequence[int] | None = None,
    fence: str = "raise",
    patience: float = PATIENCE,
    end_after_patience: bool = False,
    debug: bool = False,
    port: int | None = None,
    timeout: float = 60.0,
    quiet: bool = False,
    fork: bool | str | None = None,
    hosts: ipyparallel.Client | ipyparallel.DirectView | None = None,
) -> World:
    """Launch ``n`` ranks, each a process with its own device and the environment variables that torchrun sets.

    Args:
        n: number of ranks.
        backend: ``nccl`` or ``gloo``; by default DDP_BACKEND, else NCCL where there are GPUs.
        devices: CUDA devices to use, in rank order.
        fence: what to do when ranks issue mismatched collectives: ``raise``, ``warn`` or ``off`` (no check).
        patience: seconds that a rank may be blocked outside any collective before a warning says so.
        end_after_patience: it is a hang then, although the rank may still continue: for tests, and where nobody watches.
        debug: set the debugging variables of torch and NCCL that are safe for the backend.
        port: MASTER_PORT; by default a free port, chosen for each run.
        timeout: seconds to wait for all ranks to start.
        quiet: show no progress.
        fork: fork the ranks from one process that has torch imported, instead of a new interpreter for each: they start
            sooner and take less memory, and share the hash seed of strings. "training": what optimizers import is there
            too; the launch takes longer, the first training less. By default what the variable DDPNB_FORK says (1 or
            training). Linux only.
        hosts: a connected ``ipyparallel.Client`` with an engine on each host where ranks are to run; by default they run on
            this machine. As many ranks as engines: each host gets as many as it has engines; otherwise they are spread
            evenly. A view of some of its engines (``client[[0, 2]]``) leaves out the others. The Client and its engines
            stay yours (``docs/hosts.md``).

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
    imports = imports_for(fork)
    timeout = arguments.seconds("timeout", timeout)
    working_directory()
    options = {
        "fence": fence,
        "patience": patience,
        "end_after_patience": end_after_patience,
        "port": port,
        "quiet": quiet,
    }
    if hosts is not None:
        if devices is not None or port is not None or fork:
            raise UsageError("devices=, port= and fork= are for ranks on this machine.", "Leave them out with hosts=.")
        return _on_hosts(n, backend, hosts, timeout, options, debug=debug)
    plan = device_plan.plan(n, backend, devices)
    if port is not None:
        arguments.whole("port", port, 1, 65535)
        ReservedPort(port).release()
    _warn(plan.warnings)
    with contextlib.ExitStack() as undo:
        with put_off():  # until there is a World to close
            early = Early(plan, debug=debug, port=port, fork=imports)
            undo.callback(early.close)
            from ddpnb.ranks.engines.engines import Engines
            from ddpnb.world.world import World

            world = World(plan, Engines(early.cluster, imports), early, **options)
            undo.callback(_close, world)
        world._start(timeout)
        undo.pop_all()
    return world


def _on_hosts(
    n: int,
    backend: str | None,
    client: ipyparallel.Client | ipyparallel.DirectView,
    timeout: float,
    options: dict[str, Any],
    *,
    debug: bool,
) -> World:
    from ddpnb.ranks.remote import engines, hosts  # ranks elsewhere are rare
    from ddpnb.world.world import World

    found = hosts.Hosts(client, timeout)
    plan = device_plan.plan_over(n, found.devices, backend)
    found.use(plan)
    _warn((*plan.warnings, *found.warnings))
    with contextlib.ExitStack() as undo:
        early = Early(plan, debug=debug, address=found.address, begin=False)
        undo.callback(early.close)
        made = engines.RemoteEngines(early.cluster, early.folders.output, plan, found)
        world = World(plan, made, early, **options)
        undo.callback(_close, world)
        world._start(timeout)
        undo.pop_all()
    return world


def _close(world: World) -> None:
    with contextlib.suppress(WorldError):  # the reason why the launch failed is the error to report
        world.close()


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"ddpnb: warning: {printable(warning)}", file=sys.stderr)


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
        return world._examine(timeout)
