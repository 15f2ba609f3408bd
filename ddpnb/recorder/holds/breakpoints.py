"""Holds: stop a rank at the door before a collective, or before a line (``lines``), and let it continue, by steps or freely.

A thread that is held waits in Python, so that the rank still answers: its frames can be read, and an
expression evaluated in them. Without holds the cost is one check of an empty list per call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from ddpnb.errors import UsageError
from ddpnb.recorder.holds.armed_holds import ArmedHold, Shared, missed
from ddpnb.recorder.holds.conditions import Conditions
from ddpnb.recorder.holds.parted import Parted, Partings
from ddpnb.recorder.holds.release import Release, raises_releases
from ddpnb.recorder.stacks.user_frames import looked_at, note_held, place_of
from ddpnb.recording.holds import LINES_NEED_3_12, NEEDS_3_12, Hold, site_fits

if TYPE_CHECKING:
    from ddpnb.recorder.holds.held_time import HeldClock
    from ddpnb.recorder.holds.lines import Lines

raises_releases(__name__)

_TICK_S = 0.5  # on some systems a wait without a limit ignores signals
_STEP_S = 0.05  # that the answer to a step over a line waits for its end


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
    why: str = ""  # it is held
    differs: bool = False  # since a value is not the same on all ranks
    thread: int = field(default_factory=threading.get_ident)
    kind = "call"

    def fits(self, hold: Hold) -> bool:
        """Whether the call is one that a hold names; its expressions are evaluated after that."""
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
        return bool(self.parted) if hold.parted else True

    def to_json(self) -> dict[str, Any]:
        """The call, as JSON."""
        facts = {
            "kind": self.kind,
            "reason": self.why,
            "op": self.op,
            "seq": self.seq,
            "group": str(self.group),
            "since": self.since,
        }
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


@dataclass
class AtLine:
    """A thread before a line, at the entry of a function, or at an exception that has left its frames."""

    kind: str  # line, exception
    frame: Any
    file: str
    line: int
    why: str
    marks: Callable[[bool], None] | None = None
    instead: Sequence[Any] = ()
    since: float = 0.0
    opened: int = -1
    name: str = ""  # of the thread, if it is not the main thread
    thread: int = field(default_factory=threading.get_ident)

    def to_json(self) -> dict[str, Any]:
        """The place, as JSON."""
        function = self.frame.f_code.co_name
        facts = {"kind": self.kind, "reason": self.why, "since": self.since, "thread": self.name}
        return facts | {"file": self.file, "line": self.line, "function": function}


class Gate:
    """The holds of this rank, and its held threads.

    Args:
        release: raises the exception in held threads.
        partings: compares where ranks are, while a hold asks for it.
        shared: makes the files in which ranks compare values (``Groups.shared_values``).
        clock: hears from each thread when it is held, and until when; None: nobody asks.
    """

    def __init__(
        self,
        release: Release,
        partings: Partings | None = None,
        shared: Any = None,
        clock: HeldClock | None = None,
    ) -> None:
        #: not empty while anything may stop a call; the door keeps a reference to the list
        self.armed: list[bool] = []
        self._release, self._partings, self._clock = release, partings, clock
        self._condition = threading.Condition()
        self._holds: dict[int, ArmedHold] = {}
        self._conditions = Conditions()
        self._make_shared = shared
        self._shared: dict[tuple[str, str], Any] = {}  # by group and hold
        #: not empty while values wait to be announced with a call (``sameness``)
        self.announces: dict[str, Any] = {}
        #: what stops at lines; None: nothing does
        self.lines: Lines | None = None
        self._next = 1
        self._pause = False  # stop before every call that is not allowed
        self._allowed = 0
        self._opened = 0  # how often all threads were resumed
        self._held: dict[int, AtDoor | AtLine] = {}
        self._resuming = False
        self._leaving: list[AtDoor | AtLine] = []  # held calls that are about to be resumed
        self.troubles: list[str] = []  # conditions that could not be evaluated

    # -- requests of the launcher

    def hold(self, hold: Hold, *, keep: bool = False) -> None:
        """Arm a hold. ``keep``: also beyond the end of the run.

        Raises:
            UsageError: this Python does not tell what it needs.
        """
        if hold.parted and not (self._partings and self._partings.possible()):
            raise UsageError(NEEDS_3_12)
        if hold.at_lines and not (self.lines and self.lines.possible()):
            raise UsageError(LINES_NEED_3_12)
        with self._condition:
            if hold.anything:
                self._pause, self._allowed = True, 0
            elif not any(one.hold == hold and one.keep == keep for one in self._holds.values()):
                self._holds[self._next] = ArmedHold(hold, keep, self._conditions, self.troubles)
                self._next += 1
            self._settle()

    def remove(self, hold: Hold | None) -> None:
        """Remove a hold, or (None) all of them; held threads stay held until stepped or resumed."""
        with self._condition:
            self._holds = {number: one for number, one in self._holds.items() if hold not in (None, one.hold)}
            if hold is None or hold.anything:
                self._pause = False
            self._settle()

    def step(self, count: int) -> None:
        """Let ``count`` calls through, and stop before the one after them. A call that continues is no longer held then.

        A thread that is held at a line stands before its first call: the last of them is not made.
        """
        with self._condition:
            at_lines = [one for one in self._held.values() if isinstance(one, AtLine)]
            self._pause, self._allowed = True, count - bool(at_lines)
            for held in [*self._held.values()]:
                if isinstance(held, AtLine) or self._pass():
                    self._free(held)
            self._settle()

    def step_lines(self, how: str, count: int, to: str) -> bool | None:
        """Let the held thread that a user looks at continue until it is before another line (``lines.Lines.step``).

        Returns:
            Whether it is held there. Most steps take no time; of others that is not known yet. None: no thread is held.

        Raises:
            UsageError: it is held outside of the user's code, or Python does not report lines.
        """
        if self.lines is None or not self.lines.possible():
            raise UsageError(LINES_NEED_3_12)
        with self._condition:
            ident = looked_at()
            held = min(self._held.values(), key=lambda one: one.thread != ident, default=None)
            if held is None:
                return None
            if held.frame is None:
                raise UsageError("No line of your own code is held on this rank.")
            if held.kind == "exception":
                raise UsageError("An exception ends the program here.", "resume() lets it continue.")
            hold = ArmedHold(Hold(line=to), False, self._conditions, self.troubles, once=True) if to else None
            self.lines.step(held, how, count, hold)
            self._pause, self._allowed = False, 0
            self._free(held)
            self._settle()
            thread = held.thread
            return self._condition.wait_for(lambda: any(one.thread == thread for one in self._held.values()), _STEP_S)

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
            if self.lines is not None:
                self.lines.end_steps()
            for call in self._leaving:
                if self._held.get(id(call)) is call:
                    self._free(call)
            self._resuming, self._leaving = False, []
            self._settle()

    def end_of_run(self, *, ended: bool = False) -> None:
        """Remove holds that end with the run; ``ended``: it is over now, and it is recorded which of them stopped nobody."""
        with self._condition:
            if ended and self._clock is not None:
                self._clock.missed(
                    missed(self._holds.values(), self.lines.troubles() if self.lines is not None else ())
                )
            self._holds = {number: one for number, one in self._holds.items() if one.keep}
            self._pause, self._allowed = False, 0
            self.troubles.clear()
            self._shared.clear()
            for one in self._holds.values():
                one.restart()
            if self.lines is not None:
                self.lines.end_of_run()
            self._settle()

    def released(self) -> None:
        """A release was requested: held calls raise it, and so do all new calls at the door."""
        with self._condition:
            self._settle()

    def settle(self) -> None:
        """Something is to be announced."""
        with self._condition:
            self._settle()

    def _settle(self) -> None:
        if self._partings is not None:
            self._partings.switch(any(one.hold.parted for one in self._holds.values()))
        at_lines = [one for one in self._holds.values() if one.hold.at_lines]
        if self.lines is not None:
            self.lines.arm(at_lines)
        self._conditions.watch(any(one.hold.when or one.hold.differs for one in self._holds.values()))
        at_calls = len(at_lines) < len(self._holds) or bool(self.announces)
        self.armed[:] = [True] if self._pause or at_calls or self._release.wanted else []
        self._condition.notify_all()

    def state(self) -> dict[str, Any]:
        """The armed holds and the held calls, as JSON."""
        with self._condition:
            now = time.monotonic()
            held = [{**call.to_json(), "for_s": now - call.since} for call in self._held.values()]
            holds = [str(one.hold) for one in self._holds.values()]
            trouble = [self._partings.trouble] if self._partings is not None and self._partings.trouble else []
            troubles = [*self.troubles[-4:], *trouble, *(self.lines.troubles() if self.lines is not None else ())]
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
                call.why = "before every call"
                return not self._pass()
            holds = [one for one in self._holds.values() if not one.hold.at_lines]
            if not holds:
                self._settle()  # the release that armed it is over
        # All of them, since each announces its value; they run the user's expressions, hence without the lock.
        for one in holds:
            why = one.reason(call.frame, lambda armed: self._shared_at(call, armed)) if call.fits(one.hold) else ""
            if why and not call.why:
                call.why, call.differs = why, one.compares
        return bool(call.why)

    def _shared_at(self, call: AtDoor, armed: ArmedHold) -> Shared | None:
        """Where the members of its group compare the value of a hold at a call."""
        if not call.seq or call.known is None:
            return None
        shared = self.shared(call.known, str(armed.hold))
        return (shared[0], call.seq, shared[1]) if shared is not None else None

    def shared(self, known: Any, what: str) -> Any:
        """The file in which a group, or (None) all ranks, compare values of this name; None: there is none."""
        if self._make_shared is None:
            return None
        key = known.key if known is not None else "", what
        if key not in self._shared:
            self._shared[key] = self._make_shared(known, what)
        return self._shared[key]

    @property
    def now(self) -> int:
        """How often all threads were resumed."""
        return self._opened

    @property
    def is_releasing(self) -> bool:
        return bool(self._release.wanted)

    def wait(self, call: AtDoor | AtLine) -> None:
        """Hold the calling thread until it is stepped, resumed or released (also if that was since ``stops``).

        Raises:
            Released: it was released.
        """
        with self._condition:
            resumed = self._opened != call.opened  # since ``stops``
            if resumed and self._resuming:
                self._leaving.append(call)
            if self._resuming if resumed else isinstance(call, AtLine) or not self._pass():
                call.since = time.monotonic()
                self._held[id(call)] = call
                self._mark(call, True)
                self.runs_clock(held=True)
                self._condition.notify_all()
            try:
                while True:
                    if self._release.wanted:
                        raise self._release.exception()
                    if id(call) not in self._held:
                        break
                    self._condition.wait(_TICK_S)
            finally:
                if self._held.pop(id(call), None) is not None:
                    self._unmark(call)
                if call.since:
                    self.runs_clock(held=False)

    def stay(self) -> NoReturn:
        """Keep the calling thread where it is until it is released.

        Raises:
            Released: it was released.
        """
        with self._condition:
            while not self._release.wanted:
                self._condition.wait(_TICK_S)
        raise self._release.exception()

    def _free(self, call: AtDoor | AtLine) -> None:
        """Its thread continues when it wakes up, which may take long on a busy machine: it is not held from now on."""
        del self._held[id(call)]
        self._mark(call, False)

    def runs_clock(self, *, held: bool) -> None:
        """A thread, the one that calls this or one that an IDE has stopped, is held, or continues."""
        if self._clock is not None:
            (self._clock.begin if held else self._clock.end)()

    @staticmethod
    def _mark(call: AtDoor | AtLine, held: bool) -> None:
        if isinstance(call, AtLine):
            note_held(call.thread, held, call.instead)
        if call.marks is not None:
            call.marks(held)

    @staticmethod
    def _unmark(call: AtDoor | AtLine) -> None:
        """An exception ends the wait."""
        if isinstance(call, AtLine):  # the door records what becomes of its call
            Gate._mark(call, False)

    def _pass(self) -> bool:
        if self._pause and self._allowed > 0:
            self._allowed -= 1
            return True
        return False
