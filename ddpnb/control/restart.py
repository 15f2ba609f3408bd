"""Find ranks that cannot take part in another run, and replace their processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddpnb import arguments
from ddpnb.control.groups import Groups
from ddpnb.control.ranks import Ranks
from ddpnb.control.replacement import Replacement


class Restart:
    """Replaces processes, and with them the process group of the World."""

    def __init__(self, ranks: Ranks, replacement: Replacement, groups: Groups) -> None:
        self._ranks = ranks
        self._replacement = replacement
        self._groups = groups

    def restart(self, ranks: int | Iterable[int] | None, timeout: float) -> None:
        """See ``World.restart``."""
        arguments.seconds("timeout", timeout)
        with self._ranks.lock:
            self._ranks.check_open()
            startup = self._ranks.startup
            starting = startup.busy() if startup is not None else []
            wanted = self._unusable() or starting if ranks is None else arguments.ranks(ranks, self._ranks.size)
            chosen = sorted(wanted)
            if not chosen:
                return
            self._replacement.replace(chosen, timeout)
            if startup is not None and startup.busy():
                for rank in chosen:
                    startup._replaced(rank)
            elif self._groups.has_group() and not self._ranks.busy():
                self._groups.rebuild()
            else:
                self._ranks.startup = None

    def prepare(self, ranks: Sequence[int], *, cell: bool = False) -> None:
        """Before a run: await the outcome of the last one, replace dead ranks, and clean up after a failed run.

        Raises:
            WorldError: ranks are in a run, or dead ones are to run a cell.
        """
        self._ranks.check_free(ranks)
        for monitor in {self._ranks.in_run[rank] for rank in ranks if rank in self._ranks.in_run}:
            monitor.await_outcome(10)  # if it cannot be known, Run.wait() says so
        if cell:
            self._ranks.check_alive(ranks)
            return
        unusable = self._unusable()
        if not unusable:
            return
        had_group = self._groups.has_group()
        self._replacement.replace(self._replacement.clean(unusable))
        if had_group:
            self._groups.rebuild()
        else:
            self._ranks.startup = None

    def _unusable(self) -> list[int]:
        """Ranks that cannot take part in another run: dead, stopped, still busy, or left from a failed run.

        A call that never completes would block the destruction of its process group.
        """
        unusable = {*range(self._ranks.size)} - {*self._ranks.alive()}
        unusable |= {rank for rank in range(self._ranks.size) if self._ranks.processes.stopped(rank)}
        for rank, monitor in self._ranks.in_run.items():
            if monitor.outcome not in ("ok", "divergence") or not monitor.left_clean(rank):
                unusable.add(rank)
        return sorted(unusable)
