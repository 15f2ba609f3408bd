"""Arm faults on ranks, and remove them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ddpnb import arguments
from ddpnb.control.live_ranks import ANSWER_S, Ranks
from ddpnb.errors import UsageError
from ddpnb.model import phrases
from ddpnb.model.faults import KINDS, Fault, variables
from ddpnb.model.faults import fault as fault_of
from ddpnb.processes.environment import ReservedPort


@dataclass(frozen=True)
class Injection:
    """An armed fault. ``heal()`` disarms it."""

    world: Faulty
    fault: Fault
    ranks: tuple[int, ...]

    @property
    def finding(self) -> str:
        """The code of the expected finding."""
        return self.fault.finding

    @property
    def struck(self) -> dict[int, int]:
        """How often it was triggered while armed: rank -> count."""
        return {rank: told["triggered"] for rank, told in self._told().items()}

    @property
    def troubles(self) -> dict[int, list[str]]:
        """Why it could not be triggered: rank -> reasons."""
        return {rank: list(told["troubles"]) for rank, told in self._told().items() if told["troubles"]}

    def _told(self) -> dict[int, dict[str, Any]]:
        answers = self.world._engines.ask(self.ranks, {"verb": "faults"}, ANSWER_S)
        mine = self.fault.to_json()
        return {r: one for r, answer in answers.items() for one in answer.get("faults", ()) if one["fault"] == mine}

    def heal(self) -> None:
        """Disarm it."""
        self.world.heal(self)

    def __str__(self) -> str:
        return f"fault {self.fault} on {phrases.ranks(self.ranks)}: expected finding {self.finding}"

    __repr__ = __str__


class Faulty(Ranks):
    """The part of ``World`` that injects faults."""

    _unused: ReservedPort  # on which nobody listens
    _injected: list[tuple[Injection, bool, frozenset[int]]]  # whether it outlives a run, and where it is armed already

    def inject(
        self, fault: str | Fault, *, ranks: int | Iterable[int] | None = None, keep: bool = False, **given: Any
    ) -> Injection:
        """Arm a fault on ranks: at a collective, in the environment, in the data or in the model.

        It applies to the current run, or else to the next one, and ends with it. A fault of the environment
        applies to the next start-up: of a script, of ``init()``, or of a repeated step of it.

        Args:
            fault: name of a kind (``ddpnb.model.faults.KINDS`` lists them), or a ``Fault``.
            ranks: which ranks; all by default.
            keep: stay armed for later runs too.
            given: its conditions (``op``, ``seq``, ``site``, ``group``, ``step``, ``probability``, ``seed``,
                ``times``), and parameters of its kind.

        Raises:
            UsageError: unknown kind, condition, parameter, operation or rank.
            WorldError: a rank is dead or unresponsive.
        """
        if not isinstance(fault, (str, Fault)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"a fault is a name or a Fault, not {arguments.short(fault)}.", f"There are: {', '.join(KINDS)}."
            )
        if given and not isinstance(fault, str):
            raise UsageError(f"a Fault carries its own conditions: {', '.join(given)} cannot be given with it.")
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
        """Disarm one fault, or all. Effects that already happened stay: a changed parameter is not restored.

        Unresponsive ranks keep their faults until they are restarted.
        """
        if injection is not None and not isinstance(injection, Injection):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"heal() takes what inject() returned, not {arguments.short(injection)}.")
        with self._lock:
            self._check_open()
            self._injected = [one for one in self._injected if injection is not None and one[0] is not injection]
            faults = None if injection is None else [injection.fault.to_json()]
            self._tell_all({"verb": "heal", "faults": faults})

    def _variables(self, rank: int) -> dict[str, str | None]:
        """The environment variables that armed faults change on this rank."""
        found: dict[str, str | None] = {}
        for injection, _, _ in self._injected:
            if rank in injection.ranks:
                found |= variables(injection.fault, self._unused.port, self.size)
        return found
