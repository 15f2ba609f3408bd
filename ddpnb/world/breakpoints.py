"""Hold, step, resume: stop ranks before a collective or a line, and let them continue, one step at a time or freely."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddpnb.errors import UsageError, WorldError
from ddpnb.recording import arguments, phrases, verbs
from ddpnb.recording.holds import HOW, LINES_NEED_3_12, NEEDS_3_12, Hold, Place
from ddpnb.recording.rank_state import RankState
from ddpnb.render.views.status import RankStatus
from ddpnb.world import looks
from ddpnb.world.ranks import Ranks, check_refused
from ddpnb.world.results import WorldStatus
from ddpnb.world.run import Run

_STILL_S = 0.25  # a rank of which nothing is new for so long stands where it is
_MOMENT_S = 1.0  # that ranks which were waiting for those that are stepped may take to stand again
_TICK_S, _SLOWEST_TICK_S = 0.01, 0.1
_STANDING = (RankState.HELD, RankState.ENDED, RankState.WAITING, RankState.IDLE)


@dataclass(frozen=True)
class Holding:
    """An armed hold. ``wait()`` returns when ranks are held; ``remove()`` disarms it.

    ``note``: what to know of it, as that no rank has loaded its file yet.
    """

    hold: Hold
    ranks: tuple[int, ...]
    _breakpoints: Breakpoints
    note: str = field(default="", compare=False)
    _keep: bool = field(default=False, compare=False)

    def wait(self, timeout: float | None = None) -> WorldStatus:
        """Wait until each of its ranks is held, has ended, or waits for a held rank.

        Args:
            timeout: seconds to wait at most; None: no limit.

        Returns:
            What every rank is doing then.

        Raises:
            UsageError: ``timeout`` is no number of seconds.

        Example:
            >>> world.hold("all_reduce").wait(10).held
            (0, 1, 2, 3)
        """
        return self._breakpoints.wait_until_still(self.ranks, timeout)

    def remove(self) -> None:
        """Disarm it. Held ranks stay held until ``world.step()`` or ``world.resume()``.

        Raises:
            WorldError: the World is closed, or a rank is unresponsive.

        Example:
            >>> holding = world.hold(ranks=1)
            >>> holding.remove()
        """
        self._breakpoints.remove(self)

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"hold {self.hold} on {phrases.ranks(self.ranks)}{note}"

    __repr__ = __str__


class Breakpoints:
    """Holds ranks before collectives, and lets them continue."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._armed: list[tuple[Holding, bool]] = []  # for the next run, and whether they outlive it
        self._listed: list[tuple[Holding, Callable[[], bool]]] = []  # all of them, and whether the run of each is over
        self._listing = threading.Lock()  # not that of the ranks: to draw the list waits for no rank

    @property
    def armed(self) -> list[Holding]:
        """The holds that this process has armed, anywhere, and that have not ended with their run; asks no rank."""
        with self._listing:
            self._listed = [one for one in self._listed if not one[1]()]
            return [holding for holding, _ in self._listed]

    def _list(self, holding: Holding, over: Callable[[], bool]) -> None:
        with self._listing:
            self._listed = [one for one in self._listed if one[0] != holding] + [(holding, over)]

    def _unlist(self, ended: Callable[[Holding], bool]) -> None:
        with self._listing:
            self._listed = [one for one in self._listed if not ended(one[0])]

    def hold(self, hold: Hold, ranks: int | Iterable[int] | None, *, keep: bool) -> Holding:
        """See ``World.hold``."""
        with self._ranks.opened():
            if ranks is None:
                self._ranks.check_joined()
            chosen = self._ranks.chosen(ranks)
            if hold.parted and ranks is not None and len(chosen) < 2:
                raise UsageError(
                    "One rank alone cannot part from others.", "Give two or more, or none to compare all of them."
                )
            if (hold.parted or hold.at_lines) and not hasattr(sys, "monitoring"):
                raise UsageError(LINES_NEED_3_12 if hold.at_lines else NEEDS_3_12)
            note = self._located(hold.line, chosen) if hold.line else ""
            over = end_of_run(self._ranks, keep=keep)
            self._ranks.send_all(verbs.Hold())  # suspends the time-outs of ranks that will wait
            self._ranks.send(chosen, verbs.Hold(hold=hold.to_json(), keep=keep))
            holding = Holding(hold, chosen, self, note, keep)
            if keep or not set(chosen) <= set(self._ranks.busy()):
                self._armed.append((holding, keep))
            self._list(holding, over)
        return holding

    def _located(self, line: str, ranks: Sequence[int]) -> str:
        """What to know of a place.

        Raises:
            UsageError: its file is there, and no line of code is at this place.
        """
        answers = self._ranks.ask(ranks, verbs.Locate(line=verbs.LongText(line))).values()
        found = [answer for answer in answers if answer.file]
        place = Place.read(line)
        if found and not any(answer.has_code for answer in found):
            raise UsageError(*_without_code(place, found[0]))
        if not found and place.file:
            return f"no rank has loaded a file of the name {place.file} yet: it stops there once one does"
        return "in a library: variables are those of your own code around it" if found and found[0].library else ""

    def step(
        self, n: int, ranks: int | Iterable[int] | None, timeout: float, how: str = "collective", to: str = ""
    ) -> WorldStatus:
        """See ``World.step``."""
        arguments.seconds("timeout", timeout, least=0)
        if how not in HOW:
            raise UsageError(f"how cannot be {arguments.short(how)}.", f"It is one of {', '.join(HOW)}.")
        if to:
            Place.read(to)
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n < 2**31:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"n must be at least 1 {'step' if to or how != 'collective' else how}, not {arguments.short(n)}.",
                "world.resume() lets it continue.",
            )
        if how != "collective" or to:
            return self._step_lines(verbs.Step(count=n, how=how, to=verbs.LongText(to)), ranks, timeout)
        with self._ranks.opened():
            states = looks.states(self._ranks)
            chosen = self._held_ranks(ranks, {one.rank for one in states if one.state is RankState.HELD})
            waiting = [one.rank for one in states if one.state is RankState.WAITING and one.rank not in chosen]
            self._ranks.send(chosen, verbs.Step(count=n))
        return self.wait_until_still(chosen, timeout, waiting)

    def _step_lines(self, step: verbs.Step, ranks: int | Iterable[int] | None, timeout: float) -> WorldStatus:
        """Step over lines. Most steps take no time: one question, whose answers say already that the ranks are held again."""
        with self._ranks.opened():
            if step.to:
                self._located(step.to, self._ranks.chosen(ranks))
            if ranks is None:  # those that are held step; the others do nothing
                said = self._ranks.send_all(step)
                answers = {rank: one for rank, one in said.items() if not one.free}
            else:
                answers = self._ranks.send(self._held_ranks(ranks, self._held()), step)
            chosen = self._held_ranks(ranks, {*answers})
            check_refused(answers)
            if all(answer.held for answer in answers.values()):
                return WorldStatus(looks.states(self._ranks))
        return self.wait_until_still(chosen, timeout)

    def _held(self) -> set[int]:
        """The ranks that say that they are held."""
        gates = self._ranks.ask(self._ranks.alive(), verbs.Gate())
        return {rank for rank, gate in gates.items() if gate.held}

    def resume(self, ranks: int | Iterable[int] | None) -> None:
        """See ``World.resume``."""
        with self._ranks.opened():
            chosen = self._ranks.chosen(ranks)

            def ended(one: Holding) -> bool:
                return one.hold.anything and {*one.ranks} <= {*chosen}

            self._armed = [(holding, keep) for holding, keep in self._armed if not ended(holding)]
            self._unlist(ended)
            try:
                self._ranks.send(chosen, verbs.Resuming())
            finally:
                self._ranks.send(chosen, verbs.Resume())
            self._restore_timeouts()

    def remove(self, holding: Holding) -> None:
        """See ``Holding.remove``."""
        with self._ranks.opened():
            self._armed = [one for one in self._armed if one[0] != holding]
            alive = [rank for rank in self._ranks.alive() if rank in holding.ranks]
            self._ranks.send(alive, verbs.Unhold(hold=holding.hold.to_json()))
            self._unlist(holding.__eq__)
            self._restore_timeouts()

    def unhold(self) -> None:
        """See ``World.unhold``."""
        with self._ranks.opened():
            self._armed = []
            self._ranks.send(self._ranks.alive(), verbs.Unhold())
            self._unlist(lambda _: True)
            self._restore_timeouts()

    def hand_over(self, ranks: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The holds for each of these ranks, which apply them with their next request.

        ``unhurried``: any rank is held or may be, so that time-outs are suspended on all.
        """
        others = [rank for rank in self._ranks.busy() if rank not in ranks]
        unhurried = bool(self._armed) or _in_force(self._ranks.ask(others, verbs.Gate()))
        orders = {
            rank: {
                "holds": [(one.hold.to_json(), keep) for one, keep in self._armed if rank in one.ranks],
                "unhurried": unhurried,
            }
            for rank in ranks
        }
        self._drop_ended()
        return orders

    def released(self, unresponsive: Iterable[int]) -> None:
        """The ranks were released: the holds of their run have ended."""
        self._drop_ended()
        self._restore_timeouts(unresponsive=unresponsive)

    def _drop_ended(self) -> None:
        self._armed = [(holding, keep) for holding, keep in self._armed if keep]

    def _restore_timeouts(self, unresponsive: Iterable[int] = ()) -> None:
        """Restore the time-outs of the groups when no hold is armed and no rank is held.

        Args:
            unresponsive: ranks that need not be asked.
        """
        gates = self._ranks.ask([rank for rank in self._ranks.alive() if rank not in unresponsive], verbs.Gate())
        if not self._armed and not _in_force(gates):
            self._ranks.ask(list(gates), verbs.Hurry())

    def _held_ranks(self, ranks: int | Iterable[int] | None, held: set[int]) -> tuple[int, ...]:
        chosen = self._ranks.chosen(ranks)
        if ranks is None and held:
            return tuple(rank for rank in chosen if rank in held)
        free = [rank for rank in chosen if rank not in held]
        if free:
            raise WorldError(
                f"{phrases.ranks(free, True)} {phrases.verb(free, 'is', 'are')} not held.",
                "world.hold() stops ranks before their next collective; world.status() shows where they are.",
            )
        return chosen

    def wait_until_still(self, ranks: Sequence[int], timeout: float | None, others: Sequence[int] = ()) -> WorldStatus:
        """Wait until these ranks no longer progress: they are held, ended, or wait for others.

        Args:
            ranks: which ranks.
            timeout: seconds; None: no limit.
            others: ranks that may continue with them; they get a moment to stop too.
        """
        began = time.monotonic()
        deadline = None if timeout is None else began + arguments.seconds("timeout", timeout, least=0)
        known: dict[int, tuple[RankStatus, float]] = {}
        tick = _TICK_S
        while True:
            now = time.monotonic()
            shown = {one.rank: one for one in looks.states(self._ranks)}
            busy = set(self._ranks.busy())
            followed = [*ranks, *others] if now - began < _MOMENT_S else ranks
            for rank in followed:
                if rank not in known or known[rank][0] != shown[rank]:
                    known[rank] = shown[rank], now
            moving = [
                rank
                for rank in followed
                if (one := known[rank][0]).state not in _STANDING
                or (one.state is RankState.IDLE and rank in busy)  # it is about to begin
                or (one.state is RankState.WAITING and now - known[rank][1] < _STILL_S)
            ]
            held = any(one.state is RankState.HELD for one in shown.values())
            over = all(shown[rank].state is RankState.ENDED or self._is_known(rank) for rank in ranks)
            if (not moving and (held or over)) or (deadline is not None and now >= deadline):
                return WorldStatus(tuple(shown.values()))
            time.sleep(tick)
            tick = min(_SLOWEST_TICK_S, tick * 1.05)

    def _is_known(self, rank: int) -> bool:
        """Whether the outcome of its run is known: a rank that waits then, in a hang, comes to no hold."""
        monitor = self._ranks.in_run.get(rank)
        return monitor is not None and monitor.known.is_set()


def end_of_run(ranks: Ranks, *, keep: bool = False) -> Callable[[], bool]:
    """A function that says whether the run is over with which holds and faults that are armed now end: the current or the next.

    A known outcome is not the end: hanging ranks are in their run until they are released. ``keep``: they end with none.
    """

    def is_running(run: Run) -> bool:
        return any(map(run._monitor.is_in, range(ranks.size)))

    at = ranks.last_run
    running = at is not None and is_running(at)

    def over() -> bool:
        last = ranks.last_run
        return not keep and last is not None and (running or last is not at) and not is_running(last)

    return over


def _without_code(place: Place, found: verbs.Nearest) -> tuple[str, str]:
    """That a place has no code, and what to do."""
    if not place.line:
        return (
            f"{found.file} has no function {place.function}().",
            "Give the name as in its def, or with its class: Net.forward().",
        )
    if found.library and not found.near:
        return f"{found.file} is part of ddpnb, which does not hold itself.", "Give a line of your own code."
    near = " and ".join(str(line) for line in found.near)
    which = f"line {near} has" if len(found.near) == 1 else f"lines {near} have"
    return (
        f"{found.file} has no code at line {place.line}.",
        f"The nearest {which} some." if near else "It has none at all.",
    )


def _in_force(gates: Mapping[int, verbs.GateState]) -> bool:
    """Whether a hold is armed on one of these ranks, or one is held."""
    return any(gate.holds or gate.pause or gate.held for gate in gates.values())
