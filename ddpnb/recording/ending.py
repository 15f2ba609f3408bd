"""How the script ended on a rank."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from ddpnb.recording.stacks import Frame

UNKNOWN_SIGNAL = -255  # exit status of a process that was killed, where nobody saw by which signal
UNKNOWN_STATUS = -254  # of a process that has ended, where nobody saw how


@dataclass(frozen=True, slots=True)
class Ending:
    """How the script ended on a rank."""

    how: Literal["finished", "raised", "exited", "died", "ended"]  # ended: nobody saw how
    code: int = 0  # exit status; negative: the signal that killed the process
    exception: str = ""  # the class's name
    message: str = ""
    frames: tuple[Frame, ...] = ()  # of the exception, outermost first
    traceback: str = ""
    at_ns: int = 0
    asked: int | None = None  # by sys.exit(), where the system keeps less of it: 256, of which 0 is left
    parent: str = ""  # of a process that was killed: the one that had started it, if that lived on

    @property
    def well(self) -> bool:
        return self.how != "raised" and self.code == 0

    @property
    def signal_name(self) -> str:
        if self.code == UNKNOWN_SIGNAL:
            return "by a signal that was not seen"
        try:
            return signal.Signals(-self.code).name if self.code < 0 else ""
        except ValueError:
            return f"signal {-self.code}"

    @property
    def innermost_user(self) -> Frame | None:
        frames = [frame for frame in self.frames if frame.user]
        return frames[-1] if frames else None

    def __str__(self) -> str:
        if self.how == "raised":
            return f"{self.exception}: {self.message}" if self.message else self.exception
        if self.how == "died":
            return f"killed ({self.signal_name})" if self.code < 0 else f"exited with status {self.code}"
        if self.how == "ended":
            return "ended (its exit status is not known)"
        if self.asked is not None:
            return f"exited with status {self.code}, which is what the system keeps of {self.asked}"
        return "finished" if self.well else f"exited with status {self.code}"
