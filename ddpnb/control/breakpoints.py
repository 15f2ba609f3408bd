"""Hold, step, resume: stop ranks before a collective, and let them continue, one call at a time or freely."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddpnb import arguments
from ddpnb.control.live_ranks import ANSWER_S, Ranks
from ddpnb.control.results import WorldStatus
from ddpnb.errors import UsageError, WorldError
from ddpnb.model import phrases
from ddpnb.model.holds import Hold
from ddpnb.model.rank_state import RankState
from ddpnb.views.status import RankStatus

_STILL_S = 0.25  # a rank of which nothing is new for so long stands where it is
_MOMENT_S = 1.0  # that ranks which were waiting for those that are stepped may take to stand again
_TICK_S, _SLOWEST_TICK_S = 0.01, 0.1
_STANDING = (RankState.HELD, RankState.ENDED, RankState.WAITING, RankState.IDLE)


@dataclass(frozen=True)
class Holding:
    """An armed hold. ``wait()`` returns when ranks are held; ``remove()`` disarms it."""

    world: Holds
    hold: Hold
    ranks: tuple[int, ...]

    def wait(self, timeout: float | None = None) -> WorldStatus:
        """Wait until each of its ranks is held, has ended, or waits for a held rank.

        Args:
            timeout: seconds at most; None: no limit.
        """
        return self.world._until_still(self.ranks, timeout)

    def remove(self) -> None:
        """Disarm it. Held ranks stay held until ``world.step()`` or ``world.resume()``."""
        self.world._remove(self)

    def __str__(self) -> str:
        return f"hold {self.hold} on {phrases.ranks(self.ranks)}"

    __repr__ = __str__


class Holds(Ranks):
    """The part of ``World`` that holds ranks."""

    _held: list[tuple[Holding, bool]]  # holds for the next run, and whether they outlive it

    def hold(
        self,
        before: str | Iterable[str] = (),
        *,
        ranks: int | Iterable[int] | None = None,
        seq: int | None = None,
        site: str = "",
        group: str = "",
        when: str = "",
        keep: bool = False,
    ) -> Holding:
        """Stop ranks before a collective: the next one, or the next that matches all conditions.

        Variables of a held rank can be read and expressions evaluated in its frames. While a hold is armed, the
        time-outs of the process groups are suspended for new calls. A hold ends with the current run, or with
        the next run if none is in progress.

        Args:
            before: operation or operations, named as in findings: ``"all_reduce"``.
            ranks: which ranks; all by default.
            seq: sequence number of the call in its group, from 1: ``all_reduce #5`` is ``seq=5``.
            site: ``"train.py"``, ``"train.py:91"`` or the name of a function.
            group: label, name or members (``"0,2"``) of a process group.
            when: an expression, evaluated in the frame that issues the call: ``"step == 5"``.
            keep: stay armed for later runs too.

        Raises:
            UsageError: an unknown rank or operation, or an invalid expression.
            WorldError: a rank is dead or unresponsive.
        """
        ops = arguments.texts("before", before)
        hold = Hold(ops, seq, site, group, when)
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            self._tell_all({"verb": "hold", "hold": None})  # suspends the time-outs of ranks that will wait
            self._tell(chosen, {"verb": "hold", "hold": hold.to_json(), "keep": keep})
            holding = Holding(self, hold, chosen)
            if keep or not set(chosen) <= set(self._busy()):
                self._held.append((holding, keep))
        return holding

    def step(self, n: int = 1, *, ranks: int | Iterable[int] | None = None, wait: float = 5.0) -> WorldStatus:
        """Let held ranks issue ``n`` collectives, and stop them before the next one.

        Args:
            n: number of calls per rank.
            ranks: which ranks; all that are held by default.
            wait: maximum seconds to wait until they are held again, have ended, or wait for other ranks.

        Raises:
            WorldError: none of these ranks is held.
        """
        arguments.seconds("wait", wait, least=0)
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n < 2**31:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"n must be at least 1 collective, not {arguments.short(n)}.", "world.resume() lets it continue."
            )
        with self._lock:
            self._check_open()
            chosen = self._held_ranks(ranks)
            waiting = [one.rank for one in self._states() if one.state is RankState.WAITING and one.rank not in chosen]
            self._tell(chosen, {"verb": "step", "count": n})
        return self._until_still(chosen, wait, waiting)

    def resume(self, ranks: int | Iterable[int] | None = None) -> None:
        """Let held ranks continue until a hold matches again.

        Args:
            ranks: which ranks; all by default.
        """
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            self._held = [one for one in self._held if not (one[0].hold.anything and set(one[0].ranks) <= set(chosen))]
            self._tell(chosen, {"verb": "resume"})
            self._hurry(resumed=chosen)

    def _remove(self, holding: Holding) -> None:
        with self._lock:
            self._check_open()
            self._held = [one for one in self._held if one[0] != holding]
            alive = [rank for rank in holding.ranks if self._alive(rank)]
            self._tell(alive, {"verb": "unhold", "hold": holding.hold.to_json()})
            self._hurry()

    def _hurry(self, resumed: Sequence[int] = (), deaf: Iterable[int] = ()) -> None:
        """Restore the time-outs of the groups when no hold is armed and no rank is held.

        Args:
            resumed: ranks that may still appear held for a moment.
            deaf: ranks that are known to be unresponsive.
        """
        asked = [rank for rank in range(self.size) if self._alive(rank) and rank not in deaf]
        gates = self._engines.ask(asked, {"verb": "gate"}, ANSWER_S)
        armed = any(one.get("holds") or one.get("pause") for one in gates.values())
        held = any(one.get("held") for rank, one in gates.items() if rank not in resumed)
        if not self._held and not armed and not held:
            self._engines.ask(list(gates), {"verb": "hurry"}, ANSWER_S)

    def _held_ranks(self, ranks: int | Iterable[int] | None) -> tuple[int, ...]:
        chosen = self._chosen(ranks)
        held = {one.rank for one in self._states() if one.state is RankState.HELD}
        if ranks is None and held:
            return tuple(rank for rank in chosen if rank in held)
        free = [rank for rank in chosen if rank not in held]
        if free:
            raise WorldError(
                f"{phrases.ranks(free, True)} {phrases.verb(free, 'is', 'are')} not held.",
                "world.hold() stops ranks before their next collective; world.status() shows where they are.",
            )
        return chosen

    def _until_still(self, ranks: Sequence[int], timeout: float | None, others: Sequence[int] = ()) -> WorldStatus:
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
            shown = {one.rank: one for one in self._states()}
            busy = set(self._busy())
            followed = [*ranks, *others] if now - began < _MOMENT_S else ranks
            for rank in followed:
                if rank not in known or known[rank][0] != shown[rank]:
                    known[rank] = shown[rank], now
            moving = [
                rank
                for rank in followed
                if (one := known[rank][0]).state not in _STANDING
                or (one.state == "idle" and rank in busy)  # it is about to begin
                or (one.state is RankState.WAITING and now - known[rank][1] < _STILL_S)
            ]
            held = any(one.state is RankState.HELD for one in shown.values())
            if (not moving and (held or all(shown[rank].state is RankState.ENDED for rank in ranks))) or (
                deadline is not None and now >= deadline
            ):
                return WorldStatus(tuple(shown.values()))
            time.sleep(tick)
            tick = min(_SLOWEST_TICK_S, tick * 1.05)
