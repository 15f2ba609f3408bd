"""Find ranks that cannot take part in another run, and replace their processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ddpnb.recording import arguments, phrases
from ddpnb.world.group_state import shared_by_all
from ddpnb.world.groups import Groups
from ddpnb.world.ranks import OwnRanks
from ddpnb.world.release import Freed, Releasing
from ddpnb.world.replacement import Replacement


@dataclass(frozen=True, slots=True)
class Restarted:
    """The result of a restart: the ranks with new processes, and those whose processes, variables and models are kept.

    ``freed``: the others waited for them, and were released; ``group``: what became of the process group, in sentences.
    """

    ranks: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    freed: Freed = field(default_factory=Freed)
    group: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.ranks:
            return "no rank needs a new process: none is dead, stopped or in a run."
        own = phrases.verb(self.ranks, "has a new process: its", "have new processes: their")
        told = [f"{phrases.ranks(self.ranks, True)} {own} variables and models are gone."]
        if self.freed.ranks:
            them = phrases.verb(self.ranks, "it", "them")
            were = phrases.verb(self.freed.ranks, "was", "were")
            told.append(f"{phrases.ranks(self.freed.ranks, True)} waited for {them} and {were} released.")
        told += [f"Rank {rank} is not released: {why}" for rank, why in self.freed.left.items() if rank in self.kept]
        if self.kept:
            keep = phrases.verb(self.kept, "keeps its process", "keep their processes")
            told.append(f"{phrases.ranks(self.kept, True)} {keep}, variables and models.")
        return "\n".join([*told, *self.group])

    __repr__ = __str__


class Restart:
    """Replaces processes, and with them the process group of the World."""

    def __init__(self, ranks: OwnRanks, replacement: Replacement, groups: Groups, releasing: Releasing) -> None:
        self._ranks = ranks
        self._replacement = replacement
        self._groups = groups
        self._releasing = releasing

    def restart(self, ranks: int | Iterable[int] | None, timeout: float) -> Restarted:
        """See ``World.restart``."""
        arguments.seconds("timeout", timeout)
        shared = self._ranks
        with shared.opened():
            startup = shared.startup
            chosen = self.would_replace() if ranks is None else sorted(arguments.ranks(ranks, shared.size))
            if not chosen:
                return Restarted()
            freed = Freed()
            if ranks is None and self._wait_in_vain(chosen):
                freed = self._releasing.release()
            others = [rank for rank in range(shared.size) if rank not in chosen]
            idle = not set(others) & set(shared.busy())
            states = shared.groups(others) if idle else {}
            had_group, before = self._groups.has_group(), shared_by_all(states, shared.size)
            self._replacement.replace(chosen, timeout)
            shared.half_released = False
            told: list[str] = []
            if startup is not None and startup.busy():
                for rank in chosen:
                    startup._replaced(rank)
            elif (had_group or before is not None) and not shared.busy():
                told = self._groups.made(self._groups.rebuild(like=before))
            else:
                shared.startup = shared.closed_group = None
                if not shared.busy():  # the group of earlier code has lost members
                    self._replacement.clean(others)
            return Restarted(tuple(chosen), tuple(others), freed, tuple(told))

    def renew(self) -> None:
        """Give all ranks, which are in no run, new processes, without a group: those of a script that asks for them."""
        self._replacement.replace(list(range(self._ranks.size)))
        self._ranks.closed_group = None

    def would_replace(self) -> list[int]:
        """The ranks that ``restart()`` replaces: dead and stopped ones; if there are none, those that are in a run."""
        return self._gone() or self._ranks.busy()

    def _wait_in_vain(self, gone: Sequence[int]) -> bool:
        """Whether the others are in a run that cannot complete without these ranks."""
        monitors = {self._ranks.in_run[rank] for rank in self._ranks.busy() if rank in self._ranks.in_run}
        left = [rank for monitor in monitors for rank in monitor.ranks if rank not in gone and monitor.is_in(rank)]
        return bool(left) and all(monitor.outcome in ("hang", "crash") for monitor in monitors)

    def prepare(self, ranks: Sequence[int], kind: str) -> None:
        """Before a run: await the outcome of the last one, replace dead ranks, and clean up after a failed run.

        Functions and cells share the process group of earlier ones if it can still be used. One that a release has
        closed is created again if only wrapped models used it; otherwise a call in it raises an exception that says so.

        Args:
            ranks: those that are about to run it.
            kind: ``script``, ``function`` or ``cell``.

        Raises:
            WorldError: ranks are in a run, or dead ones are to run a cell.
        """
        self._ranks.check_free(ranks)
        for monitor in {self._ranks.in_run[rank] for rank in ranks if rank in self._ranks.in_run}:
            monitor.await_outcome(10)  # if it cannot be known, Run.wait() says so
        if kind != "script":
            self._releasing.finish()
            self._groups.renew()
        else:
            self._ranks.half_released = False
        if kind == "cell":
            self._ranks.check_alive(ranks)
            return
        had_group = self._groups.has_group()
        monitors = {*self._ranks.in_run.values()}
        if kind == "function" and not had_group and any(monitor.groups_closed for monitor in monitors):
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
            self._ranks.startup = self._ranks.closed_group = None

    def _unusable(self, *, fresh: bool = True) -> list[int]:
        """Ranks that cannot take part in another run: dead, stopped, still busy, or left from a failed run.

        A call that never completes would block the destruction of its process group.

        Args:
            fresh: without the process group that there is; otherwise an exception of the code alone is no reason.
        """
        unusable = {*self._gone()}
        for rank, monitor in self._ranks.in_run.items():
            failed = (
                monitor.outcome not in ("ok", "divergence")
                if fresh
                else monitor.groups_closed or monitor.broke_groups()
            )
            if failed or not monitor.left_clean(rank):
                unusable.add(rank)
        return sorted(unusable)

    def _gone(self) -> list[int]:
        """The ranks whose processes are dead or stopped."""
        alive, stopped = self._ranks.alive(), self._ranks.processes.stopped
        return [rank for rank in range(self._ranks.size) if rank not in alive or stopped(rank)]
