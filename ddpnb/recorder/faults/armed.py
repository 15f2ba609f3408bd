"""A fault that is armed on this rank: when it is triggered, and how often it was."""

from __future__ import annotations

import random
import threading
from typing import Any

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.events.runs import FaultTriggered
from ddpnb.recording.faults import Fault

MAX_TROUBLES, MAX_NOTES = 20, 16


class Armed:
    """One fault.

    Args:
        fault: what and when.
        rank: seeds the random numbers, with the fault's seed.
        keep: whether it outlives the run.
    """

    def __init__(self, fault: Fault, rank: int, *, keep: bool) -> None:
        self.fault = fault
        self.keep = keep
        self.triggered = 0
        self.troubles: list[str] = []
        self._random = random.Random(f"{fault.seed} {rank}")  # noqa: S311 (dice)
        self._lock = threading.Lock()

    def trigger(self, steps: int) -> bool:
        """Whether it is triggered at a matching occasion; counts them."""
        fault = self.fault
        with self._lock:
            if fault.times is not None and self.triggered >= fault.times:
                return False
            if fault.step is not None and steps < fault.step:
                return False
            if fault.probability < 1 and self._random.random() >= fault.probability:
                return False
            self.triggered += 1
        return True

    def cannot(self, why: str) -> None:
        """Note why it could not be triggered here."""
        self.triggered -= 1
        if len(self.troubles) < MAX_TROUBLES and why not in self.troubles:
            self.troubles.append(why)

    def note(self, box: BlackBox, **call: Any) -> None:
        """Write into the box that it is triggered, before it is: some do not return. Not each time of many."""
        if self.triggered <= MAX_NOTES:
            box.emit(FaultTriggered(fault=str(self.fault), call=call))

    def to_json(self) -> dict[str, Any]:
        return {
            "fault": self.fault.to_json(),
            "triggered": self.triggered,
            "troubles": self.troubles,
            "keep": self.keep,
        }
