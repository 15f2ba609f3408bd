"""ipyparallel's own magics (``%px``, ``%%px`` ...) on the ranks of a world: in rank order, with the variables of the cells."""

from __future__ import annotations

from typing import Any, cast

from ipyparallel.client.magics import ParallelMagics

from ddpnb.errors import WorldError
from ddpnb.ranks.engines.client import is_closed
from ddpnb.ranks.engines.engines import Engines
from ddpnb.world.world import World, open_worlds

_SUFFIX = "_ddp"  # %px_ddp, where %px is another cluster's


class Px:
    """Keeps ``%px`` on the ranks of one World, also after restarts.

    Args:
        shell: IPython's shell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._world: World | None = None
        self._magics: ParallelMagics | None = None
        self._view: Any = None
        self._engines: list[int] = []  # the engine of each rank, as the view has them

    def activate(self, world: World) -> None:
        """Register ``%px`` for this World; as ``%px_ddp`` if ``%px`` is in use by another cluster."""
        self.deactivate()
        client: Any = _engines(world).client
        self._engines = _engines_of(world)
        self._view = client.direct_view(self._engines)
        self._view.block = True
        suffix = _SUFFIX if self._is_anothers() else ""
        self._world, self._magics = world, ParallelMagics(self._shell, self._view, suffix)
        self._shell.register_magics(self._magics)
        if suffix:
            print(f"ddpnb: %px is already in use by another cluster; for the ranks use %px{suffix}.")
        self._say_who_is_who()

    def deactivate(self) -> None:
        """Unregister the magics: their World is closed."""
        if self._magics is not None:
            for kind, own in self._magics.magics.items():
                registered = self._shell.magics_manager.magics[kind]
                for name, magic in own.items():
                    if registered.get(name) == magic:
                        del registered[name]
        self._world = self._magics = self._view = None

    def refresh(self, *_: Any) -> None:
        """Before a cell: a restarted rank has a new engine, and the World may have been closed."""
        world = self._world
        if world is None:
            return
        if world.closed:
            self.deactivate()
            return
        try:
            now = _engines_of(world)
        except WorldError:  # a rank could not be replaced: that is said by what uses it, not before every cell
            return
        if self._engines != now:
            self._engines = self._view.targets = now
            self._say_who_is_who()

    def _is_anothers(self) -> bool:
        """Whether %px belongs to another cluster of the user that is running.

        The first client of ipyparallel, also that of a World, registers %px for all of its engines. That must be
        replaced: it includes engines of restarted ranks, and would wait for them forever.
        """
        owner = getattr(self._shell.magics_manager.magics["line"].get("px"), "__self__", None)
        view = getattr(owner, "view", None)
        if view is None or is_closed(view.client):
            return False
        return all(view.client is not _engines(world).client for world in open_worlds)

    def _say_who_is_who(self) -> None:
        """ipyparallel numbers engines in order of registration, which may differ from the ranks."""
        if self._engines != list(range(len(self._engines))):
            told = ", ".join(f"{engine} is rank {rank}" for rank, engine in enumerate(self._engines[:16]))
            print(f"ddpnb: in the output of %px, engine {told}{' ...' if len(self._engines) > 16 else ''}.")


def _engines(world: World) -> Engines:
    return cast("Engines", world._ranks.processes)  # only they have a client of ipyparallel


def _engines_of(world: World) -> list[int]:
    return [_engines(world).engine_id(rank) for rank in range(world.size)]
