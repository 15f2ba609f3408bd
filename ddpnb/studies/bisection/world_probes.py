"""Probes of functions, on the ranks of a World."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddpnb.errors import ProbeEnded, WorldError
from ddpnb.ranks.environment import working_directory
from ddpnb.recorder.process.components import Component, Selected
from ddpnb.studies.bisection.probing import NOTHING, Ran, outcome
from ddpnb.studies.bisection.space import Probe
from ddpnb.world.world import World


class WorldProber:
    """Runs probes of functions on the ranks of a World, each with a new process group.

    Args:
        world: whose ranks run them.
        target: that calls components; None: these are called in order.
        components: of which a probe leaves some out.
        args: for the target.
    """

    title = "functions of a World"

    def __init__(
        self, world: World, target: Callable[..., Any] | None, components: Sequence[Component], args: tuple[Any, ...]
    ) -> None:
        self._world, self._target, self._components, self._args = world, target, components, args

    def run(self, probe: Probe, environment: Mapping[str, str] = NOTHING) -> Ran:
        began = time.monotonic()
        world = self._world
        if world.closed:
            raise WorldError("the World is closed.", "Launch another one, and bisect with it.")
        self._prepare()
        on = probe.on if probe.at is None else [one.name for one in self._components]
        selected = Selected(self._target, self._components, on, self._args, fresh=True, environment=environment)
        started = world.run(selected, stream=None, end_after_patience=True)
        started.wait()
        if started.outcome == "released":
            raise ProbeEnded("the probe was ended.", "It has no answer: run it again, or judge it yourself.")
        ran = outcome(started, started.recording, working_directory(), began)
        if started.outcome == "hang":
            world.release()
        return ran

    def stop(self) -> None:
        """End the probe that runs in another thread."""
        self._world.release()

    def typed(self, _probe: Probe, /) -> str:
        """Empty: no command line runs functions of a notebook."""
        return ""

    def commit(self, _value: str, /) -> str:
        return ""

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
