"""Hands on live ranks: hold and step them, look into their frames, let them go, release them."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpnb import freed
from ddpnb.analysis import frames, phrases
from ddpnb.analysis.status import RankStatus, status
from ddpnb.cluster import hotline
from ddpnb.errors import UsageError, WorldError
from ddpnb.freed import Freed
from ddpnb.looks import Evaluations, FrameDiff, WorldStatus
from ddpnb.model.calls import OPERATIONS
from ddpnb.model.faults import Fault, variables
from ddpnb.model.faults import fault as fault_of
from ddpnb.model.holds import Hold, check_expression

if TYPE_CHECKING:
    from ddpnb.cluster.engines import Engines
    from ddpnb.model.recording import Recording

_ANSWER_S = 2.0
_STILL_S = 0.25  # a rank of which nothing is new for so long stands where it is
_TICK_S = 0.01


@dataclass(frozen=True)
class Holding:
    """A hold that is armed. ``wait()`` returns once ranks are held; ``remove()`` disarms it."""

    world: Hands
    hold: Hold
    ranks: tuple[int, ...]

    def wait(self, timeout: float | None = None) -> WorldStatus:
        """Wait until all of its ranks are held, ended, or wait for one that is.

        Args:
            timeout: seconds at most; None: no limit.
        """
        return self.world._until_still(self.ranks, timeout)

    def remove(self) -> None:
        """Disarm it. Ranks that are held stay so until ``world.step()`` or ``world.resume()``."""
        self.world._remove(self)

    def __str__(self) -> str:
        return f"hold {self.hold} on {phrases.ranks(self.ranks)}"

    __repr__ = __str__


@dataclass(frozen=True)
class Injection:
    """A fault that is armed. ``heal()`` disarms it; ``struck`` tells how often it has struck on each rank."""

    world: Hands
    fault: Fault
    ranks: tuple[int, ...]

    @property
    def finding(self) -> str:
        """The code that it must give."""
        return self.fault.finding

    @property
    def struck(self) -> dict[int, int]:
        """How often it has struck, while it is armed: rank -> count."""
        return {rank: told["struck"] for rank, told in self._told().items()}

    @property
    def troubles(self) -> dict[int, list[str]]:
        """Why it could not strike where it should have: rank -> reasons."""
        return {rank: list(told["troubles"]) for rank, told in self._told().items() if told["troubles"]}

    def _told(self) -> dict[int, dict[str, Any]]:
        answers = hotline.ask(self.world._engines, self.ranks, {"verb": "faults"}, _ANSWER_S)
        mine = self.fault.to_json()
        return {r: one for r, answer in answers.items() for one in answer.get("faults", ()) if one["fault"] == mine}

    def heal(self) -> None:
        """Disarm it."""
        self.world.heal(self)

    def __str__(self) -> str:
        return f"fault {self.fault} on {phrases.ranks(self.ranks)}: must give {self.finding}"

    __repr__ = __str__


class Hands:
    """What ``World`` can do to ranks that live."""

    size: int
    _engines: Engines
    _lock: threading.RLock
    _held: list[tuple[Holding, bool]]  # armed holds, and whether they outlive a run
    _injected: list[tuple[Injection, bool, frozenset[int]]]  # the same of faults, and where each is armed already

    def _check_open(self) -> None:
        raise NotImplementedError

    def _busy(self) -> list[int]:
        raise NotImplementedError

    def _look(self) -> Recording:
        """A Recording of this moment, without asking the ranks."""
        raise NotImplementedError

    def snapshot(self) -> Recording:
        raise NotImplementedError

    # -- hold, step, resume

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
        """Stop ranks before a collective: the next one, or the next that fits all that is given.

        A held rank answers: its frames can be read and evaluated in. While a hold is armed the groups'
        time-outs are suspended for calls that are made from then on. A hold ends with the run in which
        it was armed, or with the next one if none goes on.

        Args:
            before: operations, as findings name them: ``"all_reduce"``.
            ranks: which ranks; all by default.
            seq: number of the call in its group, from 1: ``all_reduce #5`` is ``seq=5``.
            site: ``"train.py"``, ``"train.py:91"`` or the name of a function.
            group: label, name or members (``"0,2"``) of a process group.
            when: an expression, evaluated in the frame that makes the call: ``"step == 5"``.
            keep: stay armed for later runs too.

        Raises:
            UsageError: a rank or an operation that does not exist, or an expression that is none.
            WorldError: a rank is dead or does not answer.
        """
        ops = (before,) if isinstance(before, str) else tuple(before)
        check_operations(ops)
        hold = Hold(ops, seq, site, group, when)
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            self._tell_all({"verb": "hold", "hold": None})  # suspends the time-outs of whoever will wait
            self._tell(chosen, {"verb": "hold", "hold": hold.to_json(), "keep": keep})
            holding = Holding(self, hold, chosen)
            self._held.append((holding, keep))
        return holding

    def step(self, n: int = 1, *, ranks: int | Iterable[int] | None = None, wait: float = 5.0) -> WorldStatus:
        """Let held ranks make ``n`` collectives, and stop them before the one after.

        Args:
            n: how many calls each rank makes.
            ranks: which ranks; all that are held by default.
            wait: seconds to wait at most until they stand again: held, ended, or waiting for others.

        Raises:
            WorldError: none of these ranks is held.
        """
        if n < 1:
            raise UsageError(f"a rank can make 1 collective or more, not {n!r}.", "world.resume() lets it go on.")
        with self._lock:
            self._check_open()
            chosen = self._held_ranks(ranks)
            self._tell(chosen, {"verb": "step", "count": n})
        return self._until_still(chosen, wait)

    def resume(self, ranks: int | Iterable[int] | None = None) -> None:
        """Let held ranks go on until a hold fits again.

        Args:
            ranks: which ranks; all by default.
        """
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            paused = [one for one in self._held if one[0].hold.anything and set(one[0].ranks) <= set(chosen)]
            self._held = [one for one in self._held if one not in paused]
            stay = {one.rank for one in status(self._look()) if one.state == "held"} - set(chosen)
            self._tell(chosen, {"verb": "resume"})
            self._hurry(stay)

    def _remove(self, holding: Holding) -> None:
        with self._lock:
            self._check_open()
            self._held = [one for one in self._held if one[0] != holding]
            alive = [rank for rank in holding.ranks if self._alive(rank)]
            self._tell(alive, {"verb": "unhold", "hold": holding.hold.to_json()})
            self._hurry({one.rank for one in status(self._look()) if one.state == "held"})

    def _hurry(self, held: set[int]) -> None:
        """Once nothing is armed and nobody held, the groups' own time-outs hold again."""
        if not self._held and not held:
            self._tell_all({"verb": "hurry"})

    def _held_ranks(self, ranks: int | Iterable[int] | None) -> tuple[int, ...]:
        chosen = self._chosen(ranks)
        held = {one.rank for one in status(self._look()) if one.state == "held"}
        if ranks is None and held:
            return tuple(rank for rank in chosen if rank in held)
        free = [rank for rank in chosen if rank not in held]
        if free:
            raise WorldError(
                f"{phrases.ranks(free, True)} {phrases.verb(free, 'is', 'are')} not held.",
                "world.hold() stops ranks before their next collective; world.status() shows where they are.",
            )
        return chosen

    def _until_still(self, ranks: Sequence[int], timeout: float | None) -> WorldStatus:
        """Wait until nothing is new of these ranks any more: held, ended, or waiting for others."""
        deadline = None if timeout is None else time.monotonic() + timeout
        known: dict[int, tuple[RankStatus, float]] = {}
        while True:
            now = time.monotonic()
            shown = {one.rank: one for one in status(self._look())}
            for rank in ranks:
                if rank not in known or known[rank][0] != shown[rank]:
                    known[rank] = shown[rank], now
            moving = [
                rank
                for rank, (one, since) in known.items()
                if one.state not in _STANDING or (one.state == "waiting" and now - since < _STILL_S)
            ]
            held = any(one.state == "held" for one in shown.values())
            if (not moving and (held or all(shown[rank].state == "ended" for rank in ranks))) or (
                deadline is not None and now >= deadline
            ):
                return WorldStatus(tuple(shown.values()))
            time.sleep(_TICK_S)

    # -- look

    def status(self) -> WorldStatus:
        """What every rank is doing, in a line each."""
        with self._lock:
            self._check_open()
            starting = self._starting()
            found = status(self._look())
        return WorldStatus(
            tuple(RankStatus(o.rank, "starting", starting[o.rank]) if o.rank in starting else o for o in found)
        )

    def _starting(self) -> dict[int, str]:
        """Ranks that are in a step of start-up, and what they do there."""
        raise NotImplementedError

    def evaluate(
        self, expression: str, *, ranks: int | Iterable[int] | None = None, frame: int = 0, timeout: float = 5.0
    ) -> Evaluations:
        """Evaluate an expression where ranks stand: in the user's frame, or at the prompt among the variables of cells.

        Args:
            expression: Python; it runs on the rank, with all its side effects.
            ranks: which ranks; all that live by default.
            frame: 0 for the innermost frame of the user's code, 1 for its caller ...
            timeout: seconds that it may take; what waits longer goes on in a thread of its own.

        Raises:
            UsageError: this is no expression.
        """
        check_expression(expression)
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            content = {"verb": "evaluate", "expression": expression, "frame": frame, "timeout": timeout}
            answers = hotline.ask(self._engines, chosen, content, timeout + _ANSWER_S)
        return Evaluations.of(expression, chosen, answers)

    def diff(self, frame: int = 0) -> FrameDiff:
        """The same frame of all ranks side by side, and which variables differ.

        Args:
            frame: 0 for the innermost function in which most ranks are, 1 for the one around it ...
        """
        return FrameDiff(frames.side_by_side(self._asked(values=True), frame))

    def _asked(self, *, values: bool) -> Recording:
        raise NotImplementedError

    # -- faults

    def inject(
        self, fault: str | Fault, *, ranks: int | Iterable[int] | None = None, keep: bool = False, **given: Any
    ) -> Injection:
        """Arm a fault on ranks: at the door, in the environment, in the data or in the model.

        It strikes in the run that goes on, or else in the next one, and ends with it. One of the environment
        strikes at the next start-up: of a script, of ``init()``, or a step of it that is made again.

        Args:
            fault: name of a kind (``ddpnb.faults.KINDS`` has them all), or a ``Fault``.
            ranks: which ranks; all by default.
            keep: stay armed for later runs too.
            given: when it strikes (``op``, ``seq``, ``site``, ``group``, ``step``, ``probability``, ``seed``,
                ``times``), and the parameters of its kind.

        Raises:
            UsageError: there is no such kind, condition, parameter, operation or rank.
            WorldError: a rank is dead or does not answer.
        """
        described = fault_of(fault, **given) if isinstance(fault, str) else fault
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            running = [rank for rank in chosen if rank in self._busy()]
            injection = Injection(self, described, chosen)
            self._tell(running, {"verb": "inject", "fault": described.to_json(), "keep": keep})
            if keep or described.description.place == "environment" or len(running) < len(chosen):
                self._injected.append((injection, keep, frozenset(running)))
        return injection

    def heal(self, injection: Injection | None = None) -> None:
        """Disarm one fault, or all of them. What a fault has done is done: a parameter stays as it was made.

        Ranks that do not answer any more keep theirs until they are replaced.
        """
        with self._lock:
            self._check_open()
            self._injected = [one for one in self._injected if injection is not None and one[0] is not injection]
            faults = None if injection is None else [injection.fault.to_json()]
            self._tell_all({"verb": "heal", "faults": faults})

    def _variables(self, rank: int, port: int) -> dict[str, str | None]:
        """What the faults of the environment change for this rank."""
        found: dict[str, str | None] = {}
        for injection, _, _ in self._injected:
            if rank in injection.ranks:
                found |= variables(injection.fault, port, self.size)
        return found

    # -- release

    def release(self, timeout: float = 10.0) -> Freed:
        """Give ranks that hang, wait, are held or compute back to you: the exception ``Released`` ends what they run.

        Their processes, variables and models live on. ``rebuild()`` gives them a fresh process group.

        Args:
            timeout: seconds; who is not back by then is told of in the answer.
        """
        with self._lock:
            self._check_open()
            busy = [rank for rank in self._busy() if self._alive(rank)]
            if not busy:
                return Freed()
            with self._runs_released():
                everybody = [rank for rank in range(self.size) if self._alive(rank)]
                found = freed.release(
                    self._engines,
                    everybody,
                    lambda: [rank for rank in self._busy() if self._alive(rank)],
                    "released by world.release()",
                    timeout,
                )
            self._held = [one for one in self._held if one[1]]
            self._hurry(set())
        return found

    def _runs_released(self) -> AbstractContextManager[None]:
        """Around a release: the verdict is fixed before, and shown is what comes after."""
        raise NotImplementedError

    # -- whom, and how

    def _alive(self, rank: int) -> bool:
        return self._engines.exit_status(rank) is None

    def _chosen(self, ranks: int | Iterable[int] | None) -> tuple[int, ...]:
        """These ranks, or all that live.

        Raises:
            UsageError: there is no such rank.
            WorldError: one of those that were named is dead.
        """
        if ranks is None:
            return tuple(rank for rank in range(self.size) if self._alive(rank))
        wanted = (ranks,) if isinstance(ranks, int) else tuple(dict.fromkeys(ranks))
        for rank in wanted:
            if not isinstance(rank, int) or not 0 <= rank < self.size:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"there is no rank {rank!r} in a world of {self.size}.")
            if not self._alive(rank):
                raise WorldError(f"rank {rank} is dead.", f"world.restart({rank}) replaces it.")
        return wanted

    def _tell(self, ranks: Sequence[int], content: dict[str, Any]) -> None:
        """Tell ranks something that they must have heard.

        Raises:
            WorldError: one does not answer.
        """
        answers = hotline.ask(self._engines, ranks, content, _ANSWER_S)
        deaf = [rank for rank in ranks if rank not in answers]
        if deaf:
            raise WorldError(
                f"{phrases.ranks(deaf, True)} {phrases.verb(deaf, 'does', 'do')} not answer: stopped, or the "
                "interpreter's lock is held.",
                f"world.restart({deaf[0]}) replaces it.",
            )
        refused = next((one["error"] for one in answers.values() if one.get("status") == "error"), None)
        if refused is not None:
            raise WorldError(f"a rank could not do this: {refused}.")

    def _tell_all(self, content: dict[str, Any]) -> None:
        """Tell all who hear it."""
        hotline.ask(self._engines, [rank for rank in range(self.size) if self._alive(rank)], content, _ANSWER_S)


_STANDING = ("held", "ended", "waiting", "idle")


def check_operations(names: Sequence[str]) -> None:
    """Refuse operations that there are not.

    Raises:
        UsageError: with the name that was probably meant.
    """
    for name in names:
        if name not in OPERATIONS:
            near = difflib.get_close_matches(name, OPERATIONS, 1, 0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(OPERATIONS)}."
            raise UsageError(f"there is no operation {name!r}.", hint)
