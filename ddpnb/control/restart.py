"""Before a run: find ranks that are busy or unusable, and replace their processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddpnb import arguments
from ddpnb.control.groups import Starts
from ddpnb.errors import WorldError
from ddpnb.model import phrases
from ddpnb.processes.environment import working_directory
from ddpnb.progress import Progress


class Replaces(Starts):
    """The part of ``World`` that replaces processes."""

    _quiet: bool

    def _busy(self) -> list[int]:
        in_run = [rank for rank, run in self._in_run.items() if run.is_in(rank)]
        return sorted({*in_run, *(self._startup.busy() if self._startup is not None else [])})

    def _make_room(self, ranks: Sequence[int], *, cell: bool = False) -> None:
        """Before a run: refuse if ranks are still in an earlier one, replace dead ranks, clean up after a failed run."""
        self._check_free(ranks)
        for run in {self._in_run[rank] for rank in ranks if rank in self._in_run}:
            run.await_outcome(10)  # those who wait for it learn that it cannot be known
        dead = [rank for rank in ranks if not self._alive(rank)]
        if dead and cell:
            raise WorldError(
                f"{phrases.ranks(dead, True)} {phrases.verb(dead, 'is', 'are')} dead.",
                f"world.restart({dead[0]}) replaces it.",
            )
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
        """Ranks that cannot take part in another run: dead, stopped, still busy, or left from a failed run.

        A call that never completes would block the destruction of its process group.
        """
        return [
            rank
            for rank in range(self.size)
            if not self._alive(rank)
            or self._stopped(rank)
            or (
                (run := self._in_run.get(rank)) is not None
                and not (run.outcome in ("ok", "divergence") and run.left_clean(rank))
            )
        ]

    def restart(self, ranks: int | Iterable[int] | None = None, timeout: float = 60.0) -> None:
        """Replace the processes of these ranks.

        By default of all that are dead, stopped, hanging, or left from a failed run; if there are none, of
        those that wait in a start-up step.

        A rank keeps its number and gets a new process; the other ranks are not touched. If the World has its own
        process group (``init()``, ``rebuild()``) and no rank is in a run, the group is rebuilt. Release ranks
        that still wait for a replaced rank first.

        Raises:
            UsageError: unknown rank.
            LaunchError: a new process did not start; the other ranks are not affected.
        """
        arguments.seconds("timeout", timeout)
        with self._lock:
            self._check_open()
            starting = self._startup.busy() if self._startup is not None else []
            wanted = self._spoilt() or starting if ranks is None else arguments.ranks(ranks, self.size)
            chosen = sorted(set(wanted))
            if not chosen:
                return
            working_directory()
            with self._folders.reserved(chosen) as adopt:  # while nothing has been touched
                for run in {self._in_run[rank] for rank in chosen if rank in self._in_run}:
                    run.settle()
                port = self._new_port()
                with Progress(f"restarting rank {', '.join(map(str, chosen))}", len(chosen), self._quiet) as progress:
                    self._engines.progress = progress.update
                    environments = {rank: self._environment(rank, port) for rank in chosen}
                    self._engines.replace(environments, timeout, adopt)
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
        """Whether the ranks have a process group for functions and cells."""
        return self._startup is not None and all(
            self._startup.state.at(rank, "process group").state == "done" for rank in range(self.size)
        )
