"""Find ranks that cannot take part in another run, and replace their processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddpnb import arguments
from ddpnb.control.groups import Groups
from ddpnb.control.ranks import OwnRanks
from ddpnb.control.replacement import Replacement


class Restart:
    """Replaces processes, and with them the process group of the World."""

    def __init__(self, ranks: OwnRanks, replacement: Replacement, groups: Groups) -> None:
        self._ranks = ranks
        self._replacement = replacement
        self._groups = groups

    def restart(self, ranks: int | Iterable[int] | None, timeout: float) -> None:
        """See ``World.restart``."""
        arguments.seconds("timeout", timeout)
        with self._ranks.lock:
            self._ranks.check_open()
            self._ranks.end_fresh()
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
                if not self._ranks.busy():  # the group of earlier code has lost members
                    self._replacement.clean([rank for rank in range(self._ranks.size) if rank not in chosen])

    def prepare(self, ranks: Sequence[int], kind: str) -> None:
        """Before a run: await the outcome of the last one, replace dead ranks, and clean up after a failed run.

        A function shares the process group of earlier ones if it can still be used. Where it was released, the
        function fails with an exception that says so, as a cell does.

        Args:
            ranks: those that are about to run it.
            kind: ``script``, ``function`` or ``cell``.

        Raises:
            WorldError: ranks are in a run, or dead ones are to run a cell.
        """
        self._ranks.check_free(ranks)
        for monitor in {self._ranks.in_run[rank] for rank in ranks if rank in self._ranks.in_run}:
            monitor.await_outcome(10)  # if it cannot be known, Run.wait() says so
        self._ranks.end_fresh()
        if kind == "cell":
            self._ranks.check_alive(ranks)
            return
        had_group = self._groups.has_group()
        monitors = {*self._ranks.in_run.values()}
        if kind == "function" and not had_group and any(monitor.released for monitor in monitors):
            unusable = self._gone()
            if not unusable:
                self._replacement.cut(ranks)  # the code may destroy the group: calls in it must not block that
        else:
            unusable = self._unusable(fresh=kind == "script")
        if not unusable:
            return
        # What is left of a group is of no use to the other ranks.
        self._replacement.replace(self._replacement.clean(ranks if kind == "function" else unusable))
        if had_group:
            self._groups.rebuild()
        else:
            self._ranks.startup = None

    def _unusable(self, *, fresh: bool = True) -> list[int]:
        """Ranks that cannot take part in another run: dead, stopped, still busy, or left from a failed run.

        A call that never completes would block the destruction of its process group.

        Args:
            fresh: without the process group that there is; otherwise an exception of the code alone is no reason.
        """
        unusable = {*self._gone()}
        for rank, monitor in self._ranks.in_run.items():
            failed = (
                monitor.outcome not in ("ok", "divergence") if fresh else monitor.released or monitor.broke_groups()
            )
            if failed or not monitor.left_clean(rank):
                unusable.add(rank)
        return sorted(unusable)

    def _gone(self) -> list[int]:
        """The ranks whose processes are dead or stopped."""
        alive, stopped = self._ranks.alive(), self._ranks.processes.stopped
        return [rank for rank in range(self._ranks.size) if rank not in alive or stopped(rank)]
