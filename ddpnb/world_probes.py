"""Probes of functions, on the ranks of a World."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ddpnb.bisection.failure import failures
from ddpnb.bisection.varied import Trying
from ddpnb.control.probing import Ran, finding_of
from ddpnb.control.worktrees import Repository
from ddpnb.errors import ProbeEnded, WorldError
from ddpnb.launching import launch
from ddpnb.processes.environment import working_directory
from ddpnb.recorder.components import Component, Selected
from ddpnb.world import World


class WorldProber:
    """Runs probes of functions on the ranks of a World, each with a new process group.

    ``in_order``: only the functions that a probe names are known in it; otherwise those that it does not name return None.
    """

    repository: Repository | None = None

    def __init__(
        self,
        world: World,
        target: Callable[..., Any] | None,
        components: Sequence[Component],
        args: tuple[Any, ...],
        in_order: bool = False,
    ) -> None:
        self._world, self._target, self._components, self._args = world, target, components, args
        self._in_order = in_order

    def options(self, _trying: Trying, /) -> list[str]:
        return []

    def run(self, trying: Trying) -> Ran:
        began = time.monotonic()
        world = self._world
        if world.closed:
            raise WorldError("the World is closed.", "Launch another one, and bisect with it.")
        self._prepare()
        parts = [one for one in self._components if not self._in_order or one.name in trying.command]
        looks = {name: value for name, value in trying.environment.items() if value is not None}
        probe = Selected(self._target, parts, trying.command, self._args, fresh=True, environment=looks)
        started = world.run(probe, stream=None, end_after_patience=True)
        diagnosis, folder = started.wait().diagnosis, working_directory()
        if started.outcome == "released":
            raise ProbeEnded("the probe was ended.", "It has no answer: run it again, or judge it yourself.")
        found = tuple(failures(diagnosis, started.exit_status, folder))
        finding = finding_of(diagnosis, folder)
        if started.outcome == "hang":
            world.release()
        reason = found[0].summary if found else ""
        return Ran(found, finding, reason, time.monotonic() - began, recording=started.recording)

    def stop(self) -> None:
        """End the probe that runs in another thread."""
        self._world.release()

    def _prepare(self) -> None:
        """A new process group on living ranks."""
        world = self._world
        dead = [rank for rank in range(world.size) if not world._ranks.processes.alive(rank)]
        if dead:
            world.restart(dead)
        try:
            world.rebuild()
        except WorldError:  # ranks are still in the run before
            world.release()
            world.rebuild()


class RanksProber:
    """Runs probes of functions on fewer ranks than a World has, each in a World of its own; with all ranks, in that World.

    Variables of cells are in none of the smaller ones.
    """

    repository: Repository | None = None

    def __init__(self, world: World, make: Callable[[World], WorldProber]) -> None:
        self._world, self._make = world, make
        self._running: WorldProber | None = None

    def options(self, _trying: Trying, /) -> list[str]:
        return []

    def run(self, trying: Trying) -> Ran:
        world, began = self._world, time.monotonic()
        size = int(trying.own.get("-n", world.size))
        if size == world.size:
            self._running = self._make(world)
            return self._running.run(trying)
        plan = world._own.plan
        backend = plan.backend if plan.chosen else None
        with launch(size, backend=backend, fence=world.fence, patience=world.patience, quiet=True) as smaller:
            self._running = self._make(smaller)
            ran = self._running.run(trying)
        return replace(ran, seconds=time.monotonic() - began)

    def stop(self) -> None:
        """End the probe that runs in another thread."""
        if self._running is not None:
            self._running.stop()
