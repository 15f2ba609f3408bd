"""Release: interrupt ranks, and report which are idle again."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ddpnb.recording import arguments, phrases, verbs
from ddpnb.render.views import new_group
from ddpnb.world.breakpoints import Breakpoints
from ddpnb.world.group_state import shared_by_all, untouched
from ddpnb.world.ranks import Ranks
from ddpnb.world.run_monitor import RunMonitor

RELEASE_S = 10.0  # time limit by default
_ANSWER_S = 0.5
_AGAIN_S = 0.15  # a rank that is still busy then is interrupted again: it may be in the next wait
_TICK_S = 0.004
_TRANSIT_S = 1.0  # that messages between the ranks may take to arrive before the connections are shut
_BOTH_WAYS_S = 2.0  # from then on writes are ended too
_SILENT_S = 2.0  # a rank of a busy machine may be late with its answer; one that is stopped, or on a silent host, is not asked again
_GENTLE_S = 0.4  # so long the connections are left alone, where no collective is in flight


@dataclass(frozen=True, slots=True)
class Freed:
    """The result of a release: the ranks that are idle again, why others are not, and what became of the process group."""

    ranks: tuple[int, ...] = ()
    left: dict[int, str] = field(default_factory=dict[int, str])
    seconds: float = 0.0
    group: str = ""

    def __str__(self) -> str:
        told: list[str] = []
        if not self.ranks and not self.left:
            told.append("nothing to release: no rank is in a run.")
        if self.ranks:
            verb = phrases.verb(self.ranks, "is", "are")
            told.append(f"{phrases.ranks(self.ranks, True)} {verb} released ({self.seconds:.2f} s).")
        told += [f"Rank {rank} is not released: {why}" for rank, why in self.left.items()]
        return "\n".join([*told, self.group] if self.group else told)

    __repr__ = __str__


class Releasing:
    """Releases ranks.

    Args:
        ranks: all of them.
        breakpoints: those that end with the release.
        name: of the variable that the texts name.
        backend: of the process group that ``rebuild()`` makes; empty: these ranks are none of a World.
    """

    def __init__(self, ranks: Ranks, breakpoints: Breakpoints, name: str, backend: str = "") -> None:
        self._ranks = ranks
        self._breakpoints = breakpoints
        self._name = name
        self._backend = backend

    def release(self, timeout: float = RELEASE_S) -> Freed:
        """See ``World.release``."""
        arguments.seconds("timeout", timeout, least=0)
        shared = self._ranks
        with shared.opened():
            if not _busy(shared):
                return self.finish()
            monitors = {shared.in_run[rank] for rank in shared.busy() if rank in shared.in_run}
            for monitor in monitors:
                monitor.settle(released=True)
            of_world = bool(self._backend and monitors)
            release = _Release(shared, monitors if of_world else (), f"released by {self._name}.release()", timeout)
            freed = release.made()
            kept = of_world and not release.shut and not freed.left and self._keep(monitors)
            # Where no rank has heard of the release, since no host answers, all groups are as they were.
            if not kept and release.close():
                for monitor in monitors:
                    monitor.groups_closed = True
                if shared.startup is not None:
                    shared.startup._cut()
            half = shared.half_released or not release.cut_off.isdisjoint({*freed.left, *release.silent})
            shared.half_released = of_world and not kept and half
            if shared.half_released and not freed.left:  # some have ended by themselves, and not heard of it
                finished = self.finish()
                ranks = tuple(rank for rank in freed.ranks if rank not in finished.left)
                freed = replace(finished, ranks=ranks, seconds=freed.seconds)
            elif of_world and not freed.left:
                freed = replace(freed, group=self._group(kept=kept))
            for monitor in monitors:
                monitor.show_rest()
            self._breakpoints.released(freed.left)
        return freed

    def finish(self) -> Freed:
        """End a release of which some ranks have heard a part only, when all are idle."""
        shared = self._ranks
        if not shared.half_released or _busy(shared):
            return Freed()
        everybody = shared.alive()
        answers = shared.ask(everybody, verbs.Released())
        silent = [rank for rank in everybody if rank not in answers]
        if silent:
            return Freed(left=dict.fromkeys(silent, "it does not answer. Release again when it does."))
        shared.half_released = False
        return Freed(group=self._group(kept=False))

    def _keep(self, monitors: Collection[RunMonitor]) -> bool:
        """Leave the groups open if the interrupt has touched none of them; whether that is so."""
        everybody = self._ranks.alive()
        if _in_flight(monitors) or not untouched(self._ranks.groups(everybody), self._ranks.size):
            return False
        return len(self._ranks.ask(everybody, verbs.Unreleased())) == len(everybody)

    def _group(self, *, kept: bool) -> str:
        """What became of the group of functions and cells, as text; the next one of them creates a closed one again."""
        shared = self._ranks
        states = shared.groups(shared.alive())
        if kept:
            there = any(state is not None and state.size for state in states.values())
            return "No collective was interrupted: the process group can be used as before." if there else ""
        closed = shared_by_all(states, shared.size) if len(states) == shared.size else None
        shared.closed_group = closed
        if closed is not None and not closed.users:
            return "The process group is closed: the next cell or function creates it again."
        if not any(state is not None and state.size for state in states.values()):
            return ""  # of a script: the next one makes its own
        again = new_group.again(closed.users) if closed is not None else ""
        return f"The process group is closed: {self._name}.rebuild() creates a new one. {again}".rstrip()


class _Release:
    """One release of the busy ranks. ``shut``: those whose connections were shut down; ``cut_off``: whose hosts were silent;
    ``silent``: that did not answer when they were asked last.

    Args:
        ranks: all; gloo waits on the connections between them.
        monitors: of the runs whose ranks may be interrupted without touching the connections.
        why: text of the exception.
        timeout: seconds; the result names the ranks that are still busy then.
    """

    def __init__(self, ranks: Ranks, monitors: Collection[RunMonitor], why: str, timeout: float) -> None:
        self._ranks = ranks
        self._monitors = monitors
        self._why = why
        self._timeout = timeout
        self.silent: set[int] = set()
        self.shut: set[int] = set()
        self.cut_off: set[int] = set()

    def made(self) -> Freed:
        """Release the busy ranks, and wait until they are idle.

        Raises:
            WorldError: the controller has died or is stopped.
        """
        began = time.monotonic()
        processes, everybody = self._ranks.processes, self._ranks.alive()
        outside = processes.outside()
        asked = waiting = _busy(self._ranks)
        transit_ends = began + _TRANSIT_S
        while waiting and time.monotonic() - began < self._timeout:
            awake = [rank for rank in waiting if rank not in self.silent] or waiting
            # First all must know: no rank issues another call, and the first connection that is shut wakes both ends.
            heard = processes.ask(awake, verbs.Releasing(why=self._why), _ANSWER_S)
            self.silent = self.silent - set(heard) | (set(awake) - set(heard))
            self.cut_off |= {rank for ranks in processes.silent_hosts().values() for rank in ranks}
            if self._is_gentle(time.monotonic() - began):
                processes.ask(list(heard), verbs.Interrupt(), _ANSWER_S)
            else:
                between = outside.connections(everybody)
                while outside.in_transit(between) and time.monotonic() < transit_ends:
                    time.sleep(_TICK_S)
                both_ways = time.monotonic() - began > _BOTH_WAYS_S
                self.shut |= set(heard)
                requests = {r: verbs.Release(connections=between.get(r, []), both_ways=both_ways) for r in heard}
                processes.ask_each(requests, _ANSWER_S)
            again = time.monotonic() + _AGAIN_S
            while waiting and time.monotonic() < again:
                time.sleep(_TICK_S)
                waiting = _busy(self._ranks)
            if waiting and set(waiting) <= self.silent and self._given_up(waiting, time.monotonic() - began):
                break
        if waiting:
            processes.check_connection()  # without it no rank has heard of this: that says nothing of them
        left = {rank: _why_not(self._ranks, rank, rank in self.silent) for rank in waiting}
        return Freed(tuple(rank for rank in asked if rank not in left), left, time.monotonic() - began)

    def _given_up(self, silent: Collection[int], passed: float) -> bool:
        """Whether an answer of these ranks is not to be expected any more."""
        return passed > _SILENT_S or all(rank in self.cut_off or self._ranks.processes.stopped(rank) for rank in silent)

    def _is_gentle(self, passed: float) -> bool:
        """Whether an exception alone may end what the ranks do: none of them waits in a collective."""
        return bool(self._monitors) and not self.shut and passed < _GENTLE_S and not _in_flight(self._monitors)

    def close(self) -> bool:
        """Every later call in the groups fails, on all ranks that hear of it, and says why. Whether there are any."""
        asked = sorted(self.shut | {*self._ranks.alive()} - self.silent)
        self._ranks.processes.ask(asked, verbs.Released(), _ANSWER_S)
        return bool(asked)


def _busy(ranks: Ranks) -> list[int]:
    return [rank for rank in ranks.busy() if ranks.processes.alive(rank)]


def _in_flight(monitors: Collection[RunMonitor]) -> bool:
    """Whether a rank of these runs is in a collective, or has one in flight."""
    recordings = [monitor.another_observer().record(ask=False, follow=False) for monitor in monitors]
    return any(record.in_flight for recording in recordings for record in recording.ranks.values())


def _why_not(ranks: Ranks, rank: int, silent: bool) -> str:
    host = next((name for name, mine in ranks.processes.silent_hosts().items() if rank in mine), None)
    if host is not None:
        return f"host {host} does not answer. Release again when it does."
    if ranks.processes.stopped(rank):
        why = f"its process is stopped (kill -CONT {ranks.processes.pid(rank)})."
    else:
        why = "it is unresponsive." if silent else "it is still running; it may have caught the exception."
    return f"{why} {ranks.replaces(rank)}"
