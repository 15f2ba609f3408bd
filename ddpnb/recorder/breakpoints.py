"""Holds: stop a rank at the door before a collective, and let it continue, one call at a time or freely.

A thread that is held waits in Python, so that the rank still answers: its frames can be read, and an
expression evaluated in them. Without holds the cost is one check of an empty list per call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recorder.evaluation import names_in, sentence
from ddpnb.recorder.parted import Parted, Partings
from ddpnb.recorder.release import Release, raises_releases
from ddpnb.recorder.signal_handlers import of_handler
from ddpnb.recorder.user_frames import place_of
from ddpnb.recording.holds import NEEDS_3_12, Hold, site_fits
from ddpnb.texts import shortened

raises_releases(__name__)

_TICK_S = 0.5  # on some systems a wait without a limit ignores signals


@dataclass
class AtDoor:
    """A call at the door, as holds match it."""

    op: str
    seq: int  # 0 for sends and receives
    group: Any  # model.calls.Group
    frame: Any  # the user's, or None
    opened: int = -1  # how often all threads had been resumed when it reached the gate
    known: Any = None  # recorder.groups.KnownGroup
    parted: Sequence[Parted] = ()  # members of the group that are elsewhere in the program
    marks: Callable[[bool], None] | None = None  # writes in its record that it is held, or no longer
    since: float = 0.0  # when it was held

    def fits(self, hold: Hold) -> bool:
        """Whether a hold matches this call.

        Raises:
            Exception: raised by the expression of the hold.
        """
        if hold.before and self.op not in hold.before:
            return False
        if hold.seq is not None and self.seq != hold.seq:
            return False
        if hold.group and hold.group not in self._names():
            return False
        if hold.site:
            if self.frame is None:
                return False
            code = self.frame.f_code
            if not site_fits(hold.site, code.co_filename, self.frame.f_lineno, code.co_name):
                return False
        if hold.parted:
            return bool(self.parted)
        if hold.when:
            if self.frame is None:
                return False
            return bool(eval(hold.when, names_in(self.frame)))  # noqa: S307 (the user's own)
        return True

    def to_json(self) -> dict[str, Any]:
        """The call, as JSON."""
        facts = {"op": self.op, "seq": self.seq, "group": str(self.group), "since": self.since}
        return facts if self.frame is None else facts | place_of(self.frame)

    def _names(self) -> tuple[str, ...]:
        members = ",".join(map(str, self.group.ranks))
        return (
            str(self.group),
            self.group.label,
            self.group.name,
            self.group.key,
            members,
            f"[{members.replace(',', ', ')}]",
        )


class Gate:
    """The holds of this rank, and its held threads.

    Args:
        release: raises the exception in held threads.
        partings: compares where ranks are, while a hold asks for it.
    """

    def __init__(self, release: Release, partings: Partings | None = None) -> None:
        #: not empty while anything may stop a call; the door keeps a reference to the list
        self.armed: list[bool] = []
        self._release, self._partings = release, partings
        self._condition = threading.Condition()
        self._holds: dict[int, tuple[Hold, bool]] = {}
        self._next = 1
        self._pause = False  # stop before every call that is not allowed
        self._allowed = 0
        self._opened = 0  # how often all threads were resumed
        self._held: dict[int, AtDoor] = {}
        self._resuming = False
        self._leaving: list[AtDoor] = []  # held calls that are about to be resumed
        self.troubles: list[str] = []  # conditions that could not be evaluated

    # -- requests of the launcher

    def hold(self, hold: Hold, *, keep: bool = False) -> None:
        """Arm a hold. ``keep``: also beyond the end of the run.

        Raises:
            UsageError: this Python does not tell what it needs.
        """
        if hold.parted and not (self._partings and self._partings.possible()):
            raise UsageError(NEEDS_3_12)
        with self._condition:
            if hold.anything:
                self._pause, self._allowed = True, 0
            elif (hold, keep) not in self._holds.values():
                self._holds[self._next] = hold, keep
                self._next += 1
            self._settle()

    def remove(self, hold: Hold) -> None:
        """Remove a hold; held threads stay held until stepped or resumed."""
        with self._condition:
            self._holds = {number: entry for number, entry in self._holds.items() if entry[0] != hold}
            if hold.anything:
                self._pause = False
            self._settle()

    def step(self, count: int) -> None:
        """Let ``count`` calls through, and stop before the one after them. A call that continues is no longer held then."""
        with self._condition:
            self._pause, self._allowed = True, count
            for call in [*self._held.values()]:
                if self._pass():
                    self._free(call)
            self._settle()

    def resuming(self) -> None:
        """All threads are about to continue, until a hold matches again: from now on calls stop at holds alone.

        Held ones stay until ``resume``, which ranks do once all have done this. One that continued before could bring
        another to its next hold, and that one would take what was meant for the last.
        """
        with self._condition:
            self._pause, self._allowed = False, 0
            self._opened += 1
            self._resuming, self._leaving = True, [*self._held.values()]
            self._settle()

    def resume(self) -> None:
        """Let the threads continue that were held at ``resuming``. Their calls are no longer held then."""
        with self._condition:
            if not self._resuming:
                self.resuming()
            for call in self._leaving:
                if self._held.get(id(call)) is call:
                    self._free(call)
            self._resuming, self._leaving = False, []
            self._settle()

    def end_of_run(self) -> None:
        """Remove holds that end with the run."""
        with self._condition:
            self._holds = {number: entry for number, entry in self._holds.items() if entry[1]}
            self._pause, self._allowed = False, 0
            self.troubles.clear()
            self._settle()

    def released(self) -> None:
        """A release was requested: held calls raise it, and so do all new calls at the door."""
        with self._condition:
            self._settle()

    def _settle(self) -> None:
        if self._partings is not None:
            self._partings.switch(any(hold.parted for hold, _ in self._holds.values()))
        self.armed[:] = [True] if self._pause or self._holds or self._release.wanted else []
        self._condition.notify_all()

    def state(self) -> dict[str, Any]:
        """The armed holds and the held calls, as JSON."""
        with self._condition:
            now = time.monotonic()
            held = [{**call.to_json(), "for_s": now - call.since} for call in self._held.values()]
            holds = [str(hold) for hold, _ in self._holds.values()]
            trouble = [self._partings.trouble] if self._partings is not None and self._partings.trouble else []
            troubles = [*self.troubles[-4:], *trouble]
            return {"held": held, "holds": holds, "pause": self._pause, "troubles": troubles}

    # -- from the door

    def stops(self, call: AtDoor) -> bool:
        """Whether the calling thread must stop before this call; otherwise the call uses one step."""
        if self._partings is not None and self._partings.on and call.known is not None and call.seq:
            call.parted = self._partings.look(call.op, call.known, call.seq, call.frame)
        with self._condition:
            call.opened = self._opened
            if self._release.wanted:
                return True  # wait() raises
            if self._pause:
                return not self._pass()
            holds = [hold for hold, _ in self._holds.values()]
            if not holds:
                self._settle()  # the release that armed it is over
        return any(self._fits(call, hold) for hold in holds)  # runs the user's expressions, hence without the lock

    def wait(self, call: AtDoor) -> None:
        """Hold the calling thread until it is stepped, resumed or released (also if that was since ``stops``).

        Raises:
            Released: it was released.
        """
        with self._condition:
            resumed = self._opened != call.opened  # since ``stops``
            if resumed and self._resuming:
                self._leaving.append(call)
            if self._resuming if resumed else not self._pass():
                call.since = time.monotonic()
                self._held[id(call)] = call
                self._mark(call, True)
            try:
                while True:
                    if self._release.wanted:
                        raise self._release.exception()
                    if id(call) not in self._held:
                        break
                    self._condition.wait(_TICK_S)
            finally:
                self._held.pop(id(call), None)

    def _free(self, call: AtDoor) -> None:
        """Its thread continues when it wakes up, which may take long on a busy machine: it is not held from now on."""
        del self._held[id(call)]
        self._mark(call, False)

    @staticmethod
    def _mark(call: AtDoor, held: bool) -> None:
        if call.marks is not None:
            call.marks(held)

    def _pass(self) -> bool:
        if self._pause and self._allowed > 0:
            self._allowed -= 1
            return True
        return False

    def _fits(self, call: AtDoor, hold: Hold) -> bool:
        try:
            return call.fits(hold)
        except Exception as error:  # an error in the user's expression: reported, and counted as no match
            if of_handler(error):
                raise
            if len(self.troubles) < 100:
                self.troubles.append(shortened(f"{hold.when}: {sentence(error)}", 300))
            return False
