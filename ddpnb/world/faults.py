"""Arm faults on ranks, and remove them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ddpnb.errors import UsageError, WorldError
from ddpnb.recording import arguments, phrases, verbs
from ddpnb.recording.faults import KINDS, Fault, variables
from ddpnb.recording.faults import fault as fault_of
from ddpnb.world.ranks import Ranks


@dataclass(frozen=True)
class Injection:
    """An armed fault. ``heal()`` disarms it."""

    fault: Fault
    ranks: tuple[int, ...]
    _faults: Faults

    @property
    def finding(self) -> str:
        """The code of the expected finding."""
        return self.fault.finding

    @property
    def struck(self) -> dict[int, int]:
        """How often it was triggered while armed: rank -> count."""
        return {rank: state.triggered for rank, state in self._faults.states(self).items()}

    @property
    def troubles(self) -> dict[int, list[str]]:
        """Why it could not be triggered: rank -> reasons."""
        states = self._faults.states(self)
        return {rank: list(state.troubles) for rank, state in states.items() if state.troubles}

    def heal(self) -> None:
        """Disarm it. Effects that already happened stay.

        Raises:
            WorldError: the World is closed.

        Example:
            >>> injection = world.inject("delay", ranks=1, seq=3, seconds=2)
            >>> injection.heal()
        """
        self._faults.heal(self)

    def __str__(self) -> str:
        return f"fault {self.fault} on {phrases.ranks(self.ranks)}: expected finding {self.finding}"

    __repr__ = __str__


@dataclass
class _Armed:
    injection: Injection
    keep: bool  # it outlives a run
    sent_to: frozenset[int]  # these ranks have it

    @property
    def in_environment(self) -> bool:
        return self.injection.fault.description.place == "environment"


class Faults:
    """Arms faults on ranks, and removes them."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._armed: list[_Armed] = []

    def inject(
        self, fault: str | Fault, ranks: int | Iterable[int] | None, *, keep: bool, conditions: dict[str, Any]
    ) -> Injection:
        """See ``World.inject``."""
        if not isinstance(fault, (str, Fault)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"a fault is a name or a Fault, not {arguments.short(fault)}.", f"There are: {', '.join(KINDS)}."
            )
        if conditions and not isinstance(fault, str):
            raise UsageError(f"a Fault carries its own conditions: {', '.join(conditions)} cannot be given with it.")
        described = fault_of(fault, **conditions) if isinstance(fault, str) else fault
        with self._ranks.opened():
            if described.description.place == "environment" and self._ranks.unused_port is None:
                raise WorldError(
                    f"the fault {described} changes the environment of a new start: this job has begun already.",
                    "Inject it into a World: ddpnb.launch(n).",
                )
            chosen = self._ranks.chosen(ranks)
            running = frozenset(self._ranks.busy()) & {*chosen}
            injection = Injection(described, chosen, self)
            self._ranks.send(sorted(running), verbs.Inject(fault=described.to_json(), keep=keep))
            armed = _Armed(injection, keep, running)
            if keep or armed.in_environment or len(running) < len(chosen):
                self._armed.append(armed)
        return injection

    def heal(self, injection: Injection | None) -> None:
        """See ``World.heal``."""
        if injection is not None and not isinstance(injection, Injection):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"heal() takes what inject() returned, not {arguments.short(injection)}.")
        with self._ranks.opened():
            self._armed = [one for one in self._armed if injection is not None and one.injection is not injection]
            faults = None if injection is None else [injection.fault.to_json()]
            self._ranks.send_all(verbs.Heal(faults=faults))

    def states(self, injection: Injection) -> dict[int, verbs.FaultState]:
        """What the ranks report about a fault."""
        answers = self._ranks.ask(injection.ranks, verbs.Faults())
        fault = injection.fault.to_json()
        return {rank: one for rank, answer in answers.items() for one in answer.faults if one.fault == fault}

    def hand_over(self, ranks: Sequence[int]) -> dict[int, list[tuple[Any, bool]]]:
        """The faults for each of these ranks, which apply them with their next request."""
        orders = {
            rank: [
                (one.injection.fault.to_json(), one.keep)
                for one in self._armed
                if rank in one.injection.ranks and rank not in one.sent_to and not one.in_environment
            ]
            for rank in ranks
        }
        self._armed = [one for one in self._armed if one.keep or one.in_environment]
        for one in self._armed:
            one.sent_to |= {*ranks}
        return orders

    def variables(self, rank: int) -> dict[str, str | None]:
        """The environment variables that armed faults change on this rank."""
        changed: dict[str, str | None] = {}
        assert self._ranks.unused_port is not None  # only ranks of a World begin again
        for one in self._armed:
            if rank in one.injection.ranks:
                changed |= variables(one.injection.fault, self._ranks.unused_port.port, self._ranks.size)
        return changed

    def run_started(self) -> None:
        """A run has begun: faults of its environment have been applied."""
        self._armed = [one for one in self._armed if one.keep or not one.in_environment]

    def replaced(self, ranks: Iterable[int]) -> None:
        """These ranks have new processes, without any fault."""
        for one in self._armed:
            one.sent_to -= {*ranks}
