"""All faults that are armed on this rank, each at its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.faults.at_door import AtTheDoor
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.events.runs import FaultMissed

if TYPE_CHECKING:
    from ddpnb.recorder.faults.armed import Armed
    from ddpnb.recorder.faults.in_data import InData
    from ddpnb.recorder.faults.in_model import InModel
    from ddpnb.recording.faults import Fault


class Faults:
    """The faults of one rank. Those of the environment are variables: the launcher sets them."""

    def __init__(self, box: BlackBox, door: Door, rank: int) -> None:
        self._rank = rank
        self._box = box
        self._door = door
        self._hooks: tuple[InData, InModel] | None = None
        self._places: dict[str, list[Armed]] = {"door": AtTheDoor(door).armed}

    def inject(self, fault: Fault, *, keep: bool) -> None:
        """Arm a fault; ``keep``: also for later runs."""
        from ddpnb.recorder.faults.armed import Armed

        if self._hooks is None:
            from ddpnb.recorder.faults.in_data import InData
            from ddpnb.recorder.faults.in_model import InModel

            data, model = self._hooks = InData(self._box, self._rank), InModel(self._box, self._rank)
            self._places |= {"data": data.armed, "model": model.armed}
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
        self._door.settle()
        for hooks in self._hooks or ():
            hooks.settle()

    def to_json(self) -> list[dict[str, Any]]:
        """What is armed, and how often each was triggered, as JSON."""
        return [armed.to_json() for place in self._places.values() for armed in place]
