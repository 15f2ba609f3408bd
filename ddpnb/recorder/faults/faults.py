"""All faults that are armed on this rank, each at its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpnb.model.events.runs import FaultMissed
from ddpnb.model.faults import Fault
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.door import Door
from ddpnb.recorder.faults.armed import Armed
from ddpnb.recorder.faults.in_data import InData
from ddpnb.recorder.faults.in_model import InModel


class Faults:
    """The faults of one rank. Those of the environment are variables: the launcher sets them."""

    def __init__(self, box: BlackBox, door: Door, rank: int) -> None:
        self._rank = rank
        self._box = box
        self._data, self._model = InData(box, rank), InModel(box, rank)
        self._places: dict[str, list[Armed]] = {
            "door": door.faults.armed,
            "data": self._data.armed,
            "model": self._model.armed,
        }

    def inject(self, fault: Fault, *, keep: bool) -> None:
        """Arm a fault; ``keep``: also for later runs."""
        place = self._places.get(fault.description.place)
        if place is not None:
            place.append(Armed(fault, self._rank, keep=keep))
            self._settle()

    def heal(self, faults: Sequence[Fault] | None = None) -> None:
        """Disarm these faults, or all. Effects that already happened stay."""
        for place in self._places.values():
            place[:] = [armed for armed in place if faults is not None and armed.fault not in faults]
        self._settle()

    def end_of_run(self) -> None:
        """Remove faults that end with the run; record those that were never triggered."""
        for place in self._places.values():
            for armed in place:
                if not armed.triggered:
                    self._box.emit(FaultMissed(fault=str(armed.fault), why="; ".join(armed.troubles)))
        self.forget()

    def forget(self) -> None:
        """Only what is kept stays."""
        for place in self._places.values():
            place[:] = [armed for armed in place if armed.keep]
        self._settle()

    def _settle(self) -> None:
        """Hooks are in place only while a fault is armed."""
        self._data.settle()
        self._model.settle()

    def to_json(self) -> list[dict[str, Any]]:
        """What is armed, and how often each was triggered, as JSON."""
        return [armed.to_json() for place in self._places.values() for armed in place]
