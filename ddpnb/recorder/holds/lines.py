"""Holds at lines, at the entry of functions and at exceptions, and steps over lines, by ``sys.monitoring`` (Python 3.12 and later).

Python reports the lines of the functions that a hold names, and each other line of them once. Of all other code it reports
once that it begins. So a hold costs nothing where it is not, and nothing at all runs while none is armed.

A callback blocks while its thread is held; Python reports nothing of that thread meanwhile.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import threading
from _thread import get_ident
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ddpnb.errors import Released, UsageError
from ddpnb.recorder.events.hooks import hide
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.holds.armed_holds import ArmedHold, Shared
from ddpnb.recorder.holds.breakpoints import AtDoor, AtLine, Gate
from ddpnb.recorder.holds.line_steps import Step, step_from
from ddpnb.recorder.holds.release import raises_releases
from ddpnb.recorder.stacks.evaluation import sentence
from ddpnb.recorder.stacks.signal_handlers import of_handler
from ddpnb.recorder.stacks.uncaught import Uncaught, frames_left
from ddpnb.recorder.stacks.user_frames import file_of, frames_of, is_own_file, is_user_file, is_user_frame
from ddpnb.recording.calls import Site
from ddpnb.recording.events.runs import Held
from ddpnb.recording.names import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

raises_releases(__name__)

_MONITORING: Any = getattr(sys, "monitoring", None)  # Python 3.12 and later
_TOOLS = (5, 4, 3, 2)  # the first is nobody's; paths use 3, their comparison 4, profilers 2
_NAME = "ddpnb lines"
_MOST_CODES = 10_000
_OWN_THREADS = (
    "ddpnb",
    "Control",
    "IOPub",
    "Heartbeat",
)  # those of ddpnb and of the kernel: a rank that is held must answer


class _Watched:
    """A function whose lines are reported, and the holds at them."""

    __slots__ = ("code", "entry", "lines")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.entry: list[ArmedHold] = []
        self.lines: dict[int, list[ArmedHold]] = {}


class Lines:
    """What stops at lines on this rank.

    Args:
        box: where a held thread is recorded; silent in a forked child.
        gate: holds threads.
    """

    def __init__(self, box: BlackBox, gate: Gate) -> None:
        self._box, self._gate, self._silent = box, gate, box.silent
        self._tool = -1
        self._armed: list[ArmedHold] = []
        self._once: list[ArmedHold] = []
        self._watched: dict[int, _Watched] = {}  # by the id of the code
        self._steps: dict[int, Step] = {}  # by thread
        self._records: dict[int, int] = {}  # by thread: the number of the event that says that it is held
        self._uncaught = Uncaught(self._thrown, self._failed, box.silent)
        self._trouble = ""
        self._in_child = mmap.mmap(-1, 1)  # shared with forked children

    @staticmethod
    def possible() -> bool:
        """Whether this Python reports lines."""
        return _MONITORING is not None

    # -- requests, from any thread

    def arm(self, holds: Sequence[ArmedHold]) -> None:
        """These holds are armed now."""
        if [*holds] != self._armed:
            self._armed = [*holds]
            self._in_child[0] = 0
            self._renew()

    def step(self, held: AtDoor | AtLine, how: str, count: int, to: ArmedHold | None) -> None:
        """The held thread is about to continue: stop it again before another line.

        Args:
            held: where it is.
            how: see ``holds.HOW``; ``to`` takes its place.
            count: how many steps.
            to: a hold that stops it.

        Raises:
            UsageError: there is no such line.
        """
        if to is not None:
            self._once.append(to)
        else:
            self._steps[held.thread] = step_from(held.frame, how, count)
        self._renew()

    def end_steps(self) -> None:
        """What was stepped continues freely."""
        if self._steps or self._once or (self._tool >= 0 and not self._armed):
            self._steps.clear()
            self._once.clear()
            self._renew()

    def end_of_run(self) -> None:
        """Forget what belongs to the run."""
        self._records.clear()
        self._uncaught.end_of_run()
        self._trouble = ""
        self._in_child[0] = 0
        self.end_steps()

    def troubles(self) -> list[str]:
        """What to know of the holds."""
        found = [self._trouble] if self._trouble else []
        if self._in_child[0]:
            found.append(
                "a forked child of this rank (a worker of a data loader) has passed a hold: only ranks are held; "
                "num_workers=0 loads in the rank itself"
            )
        return found

    # -- what Python reports

    def _renew(self) -> None:
        """Report what the holds and steps need now, and nothing else."""
        needed = bool(self._armed or self._steps or self._once)
        if needed and self._tool < 0:
            self._take()
        elif not needed:
            self._leave()
        if self._tool < 0:
            return
        for one in self._watched.values():
            _MONITORING.set_local_events(self._tool, one.code, 0)
        self._watched.clear()
        events = _MONITORING.events
        wanted = events.PY_START | events.PY_RESUME
        if any(one.hold.exception for one in self._armed):
            wanted |= events.RAISE | events.RERAISE | events.PY_UNWIND
        for ident in list(sys._current_frames()):
            for frame in frames_of(ident):
                self._find(frame.f_code)
        for step in list(self._steps.values()):
            self._follow(step)
        _MONITORING.set_events(self._tool, wanted)
        _MONITORING.restart_events()  # functions that have begun before may have what is looked for now

    def _take(self) -> None:
        tool = next((tool for tool in _TOOLS if _MONITORING.get_tool(tool) is None), -1)
        if tool < 0:
            self._trouble = "other tools use sys.monitoring: nothing stops at lines"
            return
        self._tool = tool
        _MONITORING.use_tool_id(tool, _NAME)
        for event, callback in self._callbacks().items():
            _MONITORING.register_callback(tool, event, callback)

    def _leave(self) -> None:
        tool, self._tool = self._tool, -1
        if tool >= 0 and _MONITORING.get_tool(tool) == _NAME:
            _MONITORING.set_events(tool, 0)
            for one in self._watched.values():
                _MONITORING.set_local_events(tool, one.code, 0)
            for event in self._callbacks():
                _MONITORING.register_callback(tool, event, None)
            _MONITORING.free_tool_id(tool)
        self._watched.clear()

    def _callbacks(self) -> dict[int, Callable[..., Any]]:
        silent, watched, steps, ident = self._silent, self._watched, self._steps, get_ident
        disable, frame_at, events = _MONITORING.DISABLE, sys._getframe, _MONITORING.events

        def begins(code: CodeType, _offset: int) -> Any:
            try:
                if self._tool < 0:
                    return disable
                known = watched.get(id(code)) or self._find(code)
                into = bool(steps) and self._begins_step(code, frame_at(1))
                if known is None or not known.entry:
                    return None if into else disable
                if silent:
                    self._in_child[0] = 1
                    return disable
                self._reached(known.entry, frame_at(1), code.co_firstlineno)
            except BaseException as error:
                self._failed(error)
            return None

        def resumes(code: CodeType, _offset: int) -> Any:
            try:
                if self._tool >= 0:
                    if id(code) not in watched:
                        self._find(code)
                    if steps and self._begins_step(code, frame_at(1)):
                        return None
            except BaseException as error:
                self._failed(error)
            return disable

        def line(code: CodeType, number: int) -> Any:
            try:
                known = watched.get(id(code))
                here = known.lines.get(number) if known is not None else None
                if silent:
                    if here:
                        self._in_child[0] = 1
                    return disable
                if steps:
                    step = steps.get(ident())
                    if step is not None:
                        frame = frame_at(1)
                        if step.reaches(frame):
                            self._stepped(step, frame, number)
                            return None
                    if not here:
                        return None
                elif not here:
                    return disable
                self._reached(here, frame_at(1), number)
            except BaseException as error:
                self._failed(error)
            return None

        def jumps(_code: CodeType, _offset: int, target: int) -> Any:
            try:
                step = steps.get(ident())
                if step is not None:
                    step.jumps(frame_at(1), target)
            except BaseException as error:
                self._failed(error)
            return None if steps else disable

        made = {
            events.PY_START: begins,
            events.PY_RESUME: resumes,
            events.LINE: line,
            events.JUMP: jumps,
            **self._uncaught.callbacks(),
        }
        return {event: hide(function, below=True) for event, function in made.items()}

    def _failed(self, error: BaseException) -> None:
        """Raises what the user is to get: a release, an interrupt, or what a signal handler raised."""
        if isinstance(error, Released) or of_handler(error):
            raise error
        if not isinstance(error, RecursionError):
            self._trouble = f"holding at lines failed: {sentence(error)}"
            with contextlib.suppress(Exception):
                self._leave()

    # -- the code

    def _find(self, code: CodeType) -> _Watched | None:
        """Report the lines of a function if a hold is at one of them."""
        found = self._watched.get(id(code))
        if found is not None:
            return found
        for armed in (*self._armed, *self._once):
            place = armed.place
            if place is None or not place.is_of(code.co_filename):
                continue
            if not place.in_libraries and not is_user_file(code.co_filename):
                continue
            if place.line and any(line == place.line for _, _, line in code.co_lines()):
                found = found or _Watched(code)
                found.lines.setdefault(place.line, []).append(armed)
            elif not place.line and place.is_entry_of(code.co_qualname):
                found = found or _Watched(code)
                found.entry.append(armed)
        return self._watch(found) if found is not None and not is_own_file(code.co_filename) else None

    def _watch(self, found: _Watched, more: int = 0) -> _Watched | None:
        if len(self._watched) >= _MOST_CODES:
            self._trouble = "there are too many functions with the lines of holds"
            return None
        self._watched[id(found.code)] = found
        events = _MONITORING.events
        wanted = more | (events.LINE if found.lines or more else 0) | (events.PY_START if found.entry else 0)
        _MONITORING.set_local_events(self._tool, found.code, 0)  # lines that were reported once are reported again
        _MONITORING.set_local_events(self._tool, found.code, wanted)
        return found

    def _follow(self, step: Step) -> None:
        """Report the lines, and for the end of an iteration the jumps, of the functions in which a step may end."""
        if self._tool < 0:
            return
        events = _MONITORING.events
        for code in step.codes:
            self._watch(self._watched.get(id(code)) or _Watched(code), events.LINE | (events.JUMP if step.loop else 0))

    def _begins_step(self, code: CodeType, frame: FrameType) -> bool:
        """Whether a function that begins is one that steps go into; then its lines are reported."""
        if not any(one.into for one in self._steps.values()) or not is_user_frame(frame):
            return False
        step = self._steps.get(get_ident())
        if step is not None and step.into:
            self._watch(self._watched.get(id(code)) or _Watched(code), _MONITORING.events.LINE)
        return True

    # -- stops

    def _reached(self, holds: Iterable[ArmedHold], frame: FrameType, line: int) -> None:
        """A thread is at the place of these holds. A condition that is false is the usual case, and returns first."""
        why, once = "", False
        for one in [*holds]:
            if one.compares and not self._may_hold(frame):
                return
            reason = one.reason(frame, self._shared)
            if reason:
                why, once = why or reason, once or one.once
        if why and self._may_hold(frame):
            why = f"reached {frame.f_code.co_name}, line {line}" if once else why
            self._hold(AtLine("line", frame, frame.f_code.co_filename, line, why))

    def _may_hold(self, frame: FrameType) -> bool:
        return not (self._gate.is_releasing or self._is_own_thread() or _within_ddpnb(frame))

    def _shared(self, armed: ArmedHold) -> Shared | None:
        """Where all ranks compare the value of a hold at a line, each time they pass it."""
        shared = self._gate.shared(None, str(armed.hold))
        armed.passes += 1
        return (shared[0], armed.passes, shared[1]) if shared is not None else None

    def _stepped(self, step: Step, frame: FrameType, line: int) -> None:
        """A step has ended; of several, the next one begins."""
        if self._gate.is_releasing:
            return
        if step.left > 1:
            with contextlib.suppress(UsageError):  # it has no such end: this was the last one
                following = self._steps[get_ident()] = step_from(frame, step.how, step.left - 1)
                self._follow(following)
                return
        self._hold(AtLine("line", frame, frame.f_code.co_filename, line, f"step {step.how}"))

    def _thrown(self, frame: FrameType, error: BaseException, behind: str) -> None:
        """An exception ends the program: hold its thread, and show its frames, with those that it has left."""
        if self._tool < 0 or self._gate.is_releasing or self._is_own_thread():
            return
        frames, line, inner = frames_left(frame, error)
        why = sentence(error) + behind
        self._hold(AtLine("exception", inner, inner.f_code.co_filename, line, why, instead=frames))

    def _hold(self, at: AtLine) -> None:
        thread = threading._active.get(at.thread)  # type: ignore[attr-defined]
        at.name = "" if thread is threading.main_thread() else one_line(str(getattr(thread, "_name", "unknown"))[:80])
        at.marks, at.opened = lambda held: self._mark(at, held), self._gate.now
        stepped = self._steps.pop(at.thread, None) is not None
        once, self._once = self._once, []
        if stepped or once:  # a stop ends whatever this thread was to do until then
            self._drop(once)
        self._gate.wait(at)

    def _drop(self, once: Sequence[ArmedHold]) -> None:
        for one in self._watched.values():
            for number, holds in list(one.lines.items()):
                one.lines[number] = [hold for hold in holds if hold not in once]
            one.entry = [hold for hold in one.entry if hold not in once]

    def _mark(self, at: AtLine, held: bool) -> None:
        """Write in the black box that a thread is held, or no longer."""
        if held:
            site = Site(at.file, at.line, at.frame.f_code.co_name)
            number = at.thread >> 6 & 0xFFFFFFFF
            event = Held(site=site, kind=at.kind, why=at.why[:500], thread=at.name, native_id=number)
            self._records[at.thread] = self._box.reopen(self._records.get(at.thread, -1), event)
        else:
            self._box.end(self._records.get(at.thread, -1))

    @staticmethod
    def _is_own_thread() -> bool:
        thread = threading._active.get(get_ident())  # type: ignore[attr-defined]
        return str(getattr(thread, "_name", "")).startswith(_OWN_THREADS)


def _within_ddpnb(frame: FrameType | None) -> bool:
    """Whether a library's code runs for ddpnb, and not for the user."""
    while frame is not None and not is_user_frame(frame):
        if is_own_file(file_of(frame)):
            return True
        frame = frame.f_back
    return False
