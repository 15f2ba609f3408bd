"""Which lines of the user's code run, in windows from one collective or optimizer step to the next.

Python reports a line when it first runs in a window (LINE events of ``sys.monitoring`` on the code of the user alone,
disabled at the first hit); the next window enables all of them again. The code is found when it begins to run (PY_START
events). These are of all code, the libraries' too, and so are only asked for while something new may come: at the
beginning, after imports, and in windows that become rarer.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from time import perf_counter, thread_time
from types import CodeType, FunctionType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from ddpnb.model import line_file as layout
from ddpnb.model.calls import Site
from ddpnb.model.events.runs import LinesNotRecorded
from ddpnb.recorder import protocol
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.door import Door
from ddpnb.recorder.exceptions import Handled
from ddpnb.recorder.hooks import Hooks, hide
from ddpnb.recorder.line_file import LineFile
from ddpnb.recorder.locks import is_mine
from ddpnb.recorder.signal_handlers import raise_if_of_handler
from ddpnb.recorder.user_frames import frames_of, is_user_file
from ddpnb.recorder.windows import EVENT_S, RESTART_S, Pace

_MONITORING: Any = getattr(sys, "monitoring", None)  # Python 3.12 and later
_TOOLS = (4, 3)  # the others are meant for debuggers, coverage, profilers and optimizers
_TOOL_IDS = range(6)
_NAME = "ddpnb"
_MOST_CODES = 100_000
_BEGIN_BYTES = 2  # of the instruction with which each function begins


def is_recorded(path: str) -> bool:
    """Whether lines of this file are recorded: a file of the user's, which ``<string>`` is not."""
    return path[:1] != "<" and is_user_file(path)


def _begins_at_once(code: CodeType) -> bool:
    """Whether the body of a function begins on its first line, as that of a lambda does."""
    first = code.co_firstlineno
    return sum(end - start for start, end, line in code.co_lines() if line == first) > _BEGIN_BYTES


class Lines(Hooks):
    """Records executed lines. Nothing happens where Python cannot report them (3.11), or ``DDPNB_LINES`` is 0."""

    def __init__(self, box: BlackBox, door: Door, folder: str, rank: int) -> None:
        super().__init__(box)
        self._door = door
        self._path = os.path.join(folder, f"rank{rank}.lines")
        self._file: LineFile | None = None
        self._tool = -1
        self._why = ""  # lines are not recorded
        self._other = ""  # another tool, because of which the run is one window
        self._recorded: dict[str, bool] = {}  # by file
        self._codes: list[weakref.ref[CodeType]] = []
        self._starting = False  # PY_START events are on
        self._starts = 0  # such events in this window
        self._new = True  # code was found in this window
        self._modules = 0
        self._window = [0]  # the number of the current one: the callbacks keep it at hand
        self._opening = threading.RLock()
        self._enabled = False  # all lines, since this window began: a signal handler may raise before
        self._call_pace, self._step_pace = Pace(), Pace()
        self._before = 0  # calls of earlier runs
        self._handled = Handled(box)
        box.on_new_table.append(self._say)

    # -- life

    def install(self) -> None:
        if _MONITORING is None or os.environ.get(protocol.LINES) == "0":
            return
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            self._why = "this Python runs without its global lock"
            return
        tool = next((tool for tool in _TOOLS if _MONITORING.get_tool(tool) is None), None)
        if tool is None:
            self._why = "other tools use sys.monitoring"
            return
        try:
            file = self._file = self._file or LineFile(self._path)
        except OSError as error:
            self._why = f"there is no room for them ({error.strerror})"
            return
        self._tool = tool
        _MONITORING.use_tool_id(tool, _NAME)
        self.on_removal(self._free)
        events = _MONITORING.events
        _MONITORING.register_callback(tool, events.PY_START, hide(self._code_starts(), below=True))
        _MONITORING.register_callback(tool, events.LINE, hide(self._line_runs(file), below=True))
        self._door.on_call.append(self._called)
        self.on_removal(self._door.on_call.clear)
        self.on_removal(register_optimizer_step_post_hook(self._stepped).remove)
        self._find_codes()

    def _free(self) -> None:
        tool, self._tool = self._tool, -1
        if _MONITORING.get_tool(tool) is None:  # the program has freed it: its events are still on (until Python 3.14)
            _MONITORING.use_tool_id(tool, _NAME)
        elif _MONITORING.get_tool(tool) != _NAME:
            return
        events = _MONITORING.events
        _MONITORING.set_events(tool, 0)
        for event in (events.PY_START, events.LINE):
            _MONITORING.register_callback(tool, event, None)
        for reference in self._codes:
            code = reference()
            if code is not None:
                _MONITORING.set_local_events(tool, code, 0)
        self._codes.clear()
        _MONITORING.free_tool_id(tool)

    def begin(self, run: int) -> None:
        """Record the lines of this run from now on."""
        if self._file is None:
            return
        self._other = ""
        self._handled.new_run()
        self._call_pace, self._step_pace = Pace(), Pace()
        if self._tool < 0:
            self._file.head[layout.RUN] = 0
            return
        self._file.new_run(run)
        self._before = self.box.calls
        self._window[0] = self._file.window
        self._starts, self._enabled = 0, True
        self._look_for_code(on=True)
        _MONITORING.restart_events()

    def _say(self) -> None:
        """A run has begun: say if its lines are not recorded."""
        if self._why:
            self.emit(LinesNotRecorded(why=self._why))

    # -- what Python reports

    def _code_starts(self) -> Any:
        """The callback for code that begins to run."""
        silent, recorded, disable = self.box.silent, self._recorded, _MONITORING.DISABLE

        def code_starts(code: CodeType, _: int) -> Any:
            if silent:
                return disable
            try:
                self._starts += 1
                file = code.co_filename
                mine = recorded.get(file)
                if mine is None:
                    mine = is_recorded(file)
                    if len(recorded) < _MOST_CODES:
                        recorded[file] = mine
                if mine:
                    self._watch(code)
            except Exception:
                self.fail()
            return disable

        return code_starts

    def _line_runs(self, file: LineFile) -> Any:
        """The callback for a line: this is what a window costs, so it is one flat function."""
        silent, rows, window, disable = self.box.silent, file.rows, self._window, _MONITORING.DISABLE
        last, counts, hits, head = file.columns[layout.LAST], file.columns[layout.COUNT], file.hits, file.head
        mask, hitted = layout.HITS - 1, layout.HITTED
        exception, handled = sys.exception, self._handled

        def line_runs(code: CodeType, line: int) -> Any:
            if silent:
                return disable
            try:
                of_file = rows.get(code.co_filename)
                row = None if of_file is None else of_file.get(line)
                if row is None:
                    row = file.add(code.co_filename, code.co_name, line)
                    if row is None:
                        return None  # it is reported again
                    error = exception()
                    if error is not None:
                        handled.record(error, Site(code.co_filename, line, code.co_name))
                now = window[0]
                if row >= 0 and last[row] != now:
                    last[row] = now
                    counts[row] += 1
                    number = file.next_hit()
                    hits[number & mask] = now << 32 | row
                    head[hitted] = number + 1
            except Exception:
                self.fail()
            return disable

        return line_runs

    def fail(self) -> None:
        lost = self._tool >= 0 and _MONITORING.get_tool(self._tool) != _NAME
        if lost:  # not our failure
            raise_if_of_handler()
            self.remove()
            self._why = "the program has freed the tool of sys.monitoring that ddpnb uses"
            self._say()
        else:
            super().fail()
            self._why = "a hook of ddpnb failed"
        if self._file is not None:  # what ran from here on is not known: neither is what did not run
            self._file.head[layout.RUN] = 0

    # -- the user's code

    def _watch(self, code: CodeType) -> None:
        """Ask for the lines of this code, and of all code inside it."""
        events, waiting = _MONITORING.events, [code]
        while waiting and len(self._codes) < _MOST_CODES:
            code = waiting.pop()
            if _MONITORING.get_local_events(self._tool, code) & events.LINE:
                continue
            self._new = True
            self._codes.append(weakref.ref(code))
            # Python 3.13.0 reports the line on which a function begins only if it also reports that the function does.
            both = events.LINE | events.PY_START
            _MONITORING.set_local_events(self._tool, code, both if _begins_at_once(code) else events.LINE)
            waiting += [constant for constant in code.co_consts if type(constant) is CodeType]

    def _find_codes(self) -> None:
        """Watch the user's code that there is already: what runs, and all functions."""
        codes = [frame.f_code for ident in list(sys._current_frames()) for frame in frames_of(ident)]
        codes += [value.__code__ for value in gc.get_objects() if type(value) is FunctionType]
        mine = {path: is_recorded(path) for path in {code.co_filename for code in codes}}
        for code in codes:
            if mine[code.co_filename]:
                self._watch(code)
        self._look_for_code(on=True)

    def _look_for_code(self, *, on: bool) -> None:
        if on != self._starting:
            self._starting = on
            _MONITORING.set_events(self._tool, _MONITORING.events.PY_START if on else 0)
        self._new, self._modules = False, len(sys.modules)

    # -- windows

    @property
    def spent(self) -> float:
        """What the windows of this run have cost, in seconds, as far as it is known."""
        return self._call_pace.spent + self._step_pace.spent

    def _called(self, number: int) -> None:
        """A collective is about to be made."""
        number -= self._before
        if self._call_pace.due(number):
            self._begin_window(self._call_pace, number)

    def _stepped(self, *_: Any) -> None:
        """An optimizer has made a step."""
        steps = self.box.steps
        if self._step_pace.due(steps):
            self._begin_window(self._step_pace, steps)

    def _begin_window(self, pace: Pace, number: int) -> None:
        """Enable all lines again, unless none ran since. Collectives of a backward pass follow one another without."""
        file = self._file
        if file is None or self.box.silent or not self._opening.acquire(blocking=False):
            return
        try:
            if self._enabled and not file.hits_in_window:
                return
            began = thread_time()
            if not self._is_alone():
                return
            # The first window is not one that was begun for its lines: the program starts in it.
            cost = RESTART_S + EVENT_S * (file.hits_in_window + self._starts if file.window > 1 else 0)
            self._starts, self._enabled = 0, False
            self._window[0] = window = file.open_window(self.box.calls - self._before, self.box.steps)
            self._look_for_code(on=self._new or len(sys.modules) != self._modules or not window & (window - 1))
            _MONITORING.restart_events()
            self._enabled = True
            pace.opened(number, perf_counter(), cost + thread_time() - began)
        except Exception:
            self.fail()
        finally:
            while is_mine(self._opening):  # also of a call that a signal handler ended right after it took it
                self._opening.release()

    def _is_alone(self) -> bool:
        """Whether no other tool uses ``sys.monitoring``: its events would be enabled again too. Else it is one window."""
        tools = [_MONITORING.get_tool(tool) for tool in _TOOL_IDS]
        if tools[self._tool] != _NAME:
            raise RuntimeError(f"tool {self._tool} of sys.monitoring was taken by {tools[self._tool]}")
        others = [tool for tool in tools if tool not in (None, _NAME)]
        if others and not self._other:
            self._other = str(others[0])
            self.emit(LinesNotRecorded(why=f"{self._other} uses sys.monitoring", whole=True))
        return not others
