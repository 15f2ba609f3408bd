"""The path of this rank: which way each decision of the user's code went, in order, and the collectives between them.

Python reports jumps, beginnings and ends of functions, and exceptions (``sys.monitoring``, Python 3.12 and later). Each event of a thread
that makes collectives is a word (two numbers: ``model.path_file``) in the list of that thread; the list goes into shared memory at each
collective. The control channel does the same for a rank that hangs.

A jump that is reported very often between two collectives is hot: it is switched off, and so is a function that begins very often. They
come back after a pause, which doubles each time.
"""

from __future__ import annotations

import dis
import os
import sys
import threading
from _thread import get_ident
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from time import perf_counter, thread_time
from types import CodeType, FrameType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.groups import KnownGroup
from ddpnb.recorder.collectives.phases import Phases
from ddpnb.recorder.events.data import Data
from ddpnb.recorder.events.exceptions import Handled
from ddpnb.recorder.events.hooks import Hooks, hide
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.files.locks import is_mine
from ddpnb.recorder.paths.awaiting import Awaiting, site_of_await
from ddpnb.recorder.paths.path_file import PathFile
from ddpnb.recorder.stacks.path_codes import described
from ddpnb.recorder.stacks.signal_handlers import of_handler, raise_if_of_handler
from ddpnb.recorder.stacks.user_frames import file_of, frames_of, is_library_frame, is_user_file
from ddpnb.recording import protocol
from ddpnb.recording.calls import Group, Site, listed
from ddpnb.recording.events.runs import LinesNotRecorded
from ddpnb.recording.names import MAX_NAME
from ddpnb.recording.path import BITS, MOST, Kind, number
from ddpnb.recording.path_file import packed

_MONITORING: Any = getattr(sys, "monitoring", None)  # Python 3.12 and later
_TOOLS = (3, 4)  # the others are meant for debuggers, coverage, profilers and optimizers
_NAME = "ddpnb"
_FULL = 2 * 512  # numbers of a list that is written though no collective comes
_HOT = 64  # events at one place between two collectives
_HOT_LEADING = 256  # the same in a function that has led to a collective: its decisions matter more
# What a word costs, and a collective in words; what a run may spend at its beginning, and of the time since. Beyond it, jumps and functions
# that come more often than that between two collectives are hot.
_WORD_S, _CALL_WORDS, _FREE_S, _SHARE, _OFTEN = 0.4e-6, 12, 0.05, 0.005, 8
_BASE_EVERY = 4096  # words: a reader of the last ones must find where to begin
_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 60.0
_CODES, _TEXTS, _THREADS, _DEPTH = 20_000, 4095, 16, 2000
_HANDLERS, _HANDLER_LINES = 256, 2
_SITES = 256  # at which packages make collectives
# For the descriptions of functions: at the beginning, of the time since, and of those that are left when somebody reads.
_DESCRIBING_S, _DESCRIBING_SHARE, _ALL_S = 0.1, 0.005, 1.0

_FREE_WORDS = int(_FREE_S / _WORD_S)

# Instructions that end by StopIteration: of loops, and of ``await``, which Python reports as raised there.
_ITERATES = frozenset(dis.opmap[name] for name in ("FOR_ITER", "SEND") if name in dis.opmap)
_BEGINS, _RERAISES = dis.opmap["RESUME"], dis.opmap.get("CLEANUP_THROW", -1)
# Parts of the first number of a word; that of a decision is its offset.
_ENTER, _RESUME, _RETURN, _YIELD, _UNWIND, _RAISE, _HANDLED, _MARK, _BASE, _FRAME, _LOCATED, _CALL, _NUMBER = (
    kind << BITS
    for kind in (
        Kind.ENTER, Kind.RESUME, Kind.RETURN, Kind.YIELD, Kind.UNWIND, Kind.RAISE, Kind.HANDLED, Kind.MARK, Kind.BASE,
        Kind.FRAME, Kind.HOT, Kind.CALL, Kind.NUMBER,
    )
)  # fmt: skip
_COLD, _GAP = packed(Kind.COLD), packed(Kind.GAP)


class _Thread:
    """A thread that makes collectives."""

    def __init__(self, ident: int, place: int) -> None:
        self.ident = ident
        self.place = place  # in the file
        self.log: list[int] = []  # two numbers of each word
        self.counts: Counter[int] = (
            Counter()
        )  # of the first numbers of words since the last collective, once there were many
        self.written = 0  # words since the last BASE
        self.base = 0  # words of that
        self.is_stale = False  # a GAP was written: a BASE must follow


class PathRecorder(Hooks):
    """Records the path. Nothing happens where Python cannot report it (3.11), or ``DDPNB_LINES`` is 0."""

    def __init__(self, box: BlackBox, door: Door, phases: Phases, data: Data, folder: str, rank: int) -> None:
        super().__init__(box)
        self._door, self._phases, self._data = door, phases, data
        self._path = os.path.join(folder, f"rank{rank}.path")
        self._file: PathFile | None = None
        self._tool = -1
        self._why = ""  # nothing is recorded
        self._writing = threading.RLock()
        # All of these are at hand in the callbacks: they are emptied, never replaced.
        self._numbers: dict[int, int] = {}  # by the id of the code
        self._logs: dict[int, list[int]] = {}  # by the ident of the thread
        # Offsets at which jumps are hot: the ids of the code; None: since the last collective it is looked for in all code.
        self._suspects: dict[int, set[int] | None] = {}
        self._hot: dict[tuple[int, int], int] = {}  # by id of the code and offset: events since it was suspected
        self._off: set[tuple[int, int]] = set()  # those of them that are not recorded now
        self._shared = False  # other threads than the main thread run code that is recorded
        self._dear = False  # the path costs too much: what comes often is hot sooner
        self._words = 0  # of this run
        self._dark: dict[int, tuple[CodeType, int]] = {}  # code that is hot as a whole, and its number, by its id
        self._leading: set[int] = set()  # numbers of code in which a collective was made, of intervals with many words
        self._raised: Counter[int] = Counter()  # by place: exceptions since the last collective
        self._threads: dict[int, _Thread] = {}
        self._kept: list[CodeType] = []  # so that an id stays its own
        self._by_code: dict[tuple[str, CodeType], int] = {}
        self._undescribed: list[tuple[int, CodeType]] = []
        self._handled = Handled(box)
        self._handlers: dict[int, int] = {}  # by place: lines to record of what handles an exception there
        self._watched: dict[int, int] = {}  # by the id of code whose lines are reported now: the place
        self._files: dict[str, bool] = {}  # whether they are the user's
        self._texts: dict[str, int] = {}
        self._groups: dict[int, tuple[Any, int]] = {}
        self._said: set[str] = set()
        self._libraries: set[int] = set()  # numbers of code of packages between the user and torch
        self._stood: set[tuple[int, int]] = set()  # where packages were called that made collectives
        self._awaiting = Awaiting()
        self._any_hot = False
        self._main = 0
        self._careful: Any = None  # the callback of decisions
        self._is_plain: bool | None = None  # the one that does less is registered; None: none is
        self._began = self._describing_s = self._cooled = 0.0
        self._pause = _PAUSE_S
        box.on_new_table.append(self._say)

    # -- life

    def install(self) -> None:
        if _MONITORING is None or os.environ.get(protocol.LINES) == "0":
            return
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            self._why = "this Python runs without its global lock"
            return
        try:
            self._file = self._file or PathFile(self._path)
        except OSError:
            return
        tool = next((tool for tool in _TOOLS if _MONITORING.get_tool(tool) is None), None)
        if tool is None:
            self._why = "other tools use sys.monitoring"
            return
        self._why = ""
        self._tool = tool
        _MONITORING.use_tool_id(tool, _NAME)
        self.on_removal(self._free)
        self._register()
        self._look_at(self._door.on_call, self._called)
        self._look_at(self._phases.on_group, self._of_group)
        self._look_at(self._data.on_batch, lambda: self._mark("iteration"))
        self.on_removal(register_optimizer_step_post_hook(lambda *_: self._mark("optimizer step")).remove)

    def _look_at(self, hooks: list[Any], look: Any) -> None:
        hide(look, below=True)
        hooks.append(look)
        self.on_removal(lambda: hooks.remove(look))

    def _free(self) -> None:
        tool, self._tool = self._tool, -1
        self._logs.clear()
        self._is_plain = None
        if _MONITORING.get_tool(tool) is None:  # the program has freed it: its events are still on (until Python 3.14)
            _MONITORING.use_tool_id(tool, _NAME)
        elif _MONITORING.get_tool(tool) != _NAME:
            return
        _MONITORING.set_events(tool, 0)
        for event in self._callbacks():
            _MONITORING.register_callback(tool, event, None)
        self._forget(tool)
        _MONITORING.free_tool_id(tool)

    def _forget(self, tool: int) -> None:
        """All code is unknown."""
        self._numbers.clear()
        for code in self._kept:
            _MONITORING.set_local_events(tool, code, 0)
        for known in (
            self._logs, self._suspects, self._hot, self._dark, self._leading, self._raised, self._threads, self._kept, self._by_code,
            self._undescribed, self._texts, self._groups, self._said, self._handlers, self._watched,
            self._off, self._libraries, self._stood, self._awaiting.frames,
        ):  # fmt: skip
            known.clear()
        self._choose()

    def begin(self, run: int) -> None:
        """Record the path of this run from now on."""
        file = self._file
        if file is None:
            return
        try:
            self._handled.new_run()
            if self._tool < 0:
                self._said.clear()
                file.new_run(run)
                self._miss(f"{self._why or 'it is switched off'}.")
                return
            _MONITORING.set_events(self._tool, 0)
            self._forget(self._tool)
            file.new_run(run)
            self._main = threading.main_thread().ident or 0
            self._began, self._describing_s = perf_counter(), 0.0
            self._pause, self._cooled, self._any_hot = _PAUSE_S, self._began, False
            self._words, self._dear, self._shared = 0, False, False
            for ident in list(sys._current_frames()):
                for frame in frames_of(ident, _DEPTH):
                    if self._is_recorded(frame.f_code, frame):
                        self._number_of(frame.f_code)
            main = self._add_thread(self._main)
            self._look_at_threads()
            if main is not None and get_ident() == self._main:
                self._base(main, sys._getframe())
            _MONITORING.set_events(self._tool, self._global_events())
            _MONITORING.restart_events()
        except Exception:
            self.fail()

    def finish(self) -> None:
        """The program has ended: write what there is left."""
        if self.box.silent or not self._logs:
            return
        self._logs.clear()
        self._choose()
        self.write()

    def write(self) -> None:
        """Write what there is, for somebody who reads it now. Called from any thread."""
        try:
            end = perf_counter() + _ALL_S
            while self._undescribed and perf_counter() < end:
                self._describing_s = -_ALL_S
                self._describe()
            for thread in list(self._threads.values()):
                self._flush(thread)
        except Exception:
            self.fail()

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
        if self._file is not None:
            self._file.end()

    def _say(self) -> None:
        """A run has begun: say if its path is not recorded."""
        if self._why:
            self.emit(LinesNotRecorded(why=self._why))

    def _miss(self, why: str) -> None:
        """Say once that something is not recorded."""
        if why not in self._said and self._file is not None:
            self._said.add(why)
            self._file.say("missing", why)

    # -- what Python reports

    def _global_events(self) -> int:
        events = _MONITORING.events
        return events.PY_START | events.PY_THROW | events.PY_UNWIND | events.RAISE | events.EXCEPTION_HANDLED

    def _local_events(self) -> int:
        events = _MONITORING.events
        both = getattr(events, "BRANCH_LEFT", 0) | getattr(events, "BRANCH_RIGHT", 0)  # Python 3.14
        return (both or events.BRANCH) | events.PY_RESUME | events.PY_RETURN | events.PY_YIELD

    def _callbacks(self) -> dict[int, str]:
        """The name of the callback of each event."""
        events = _MONITORING.events
        jumps = ("BRANCH_LEFT", "BRANCH_RIGHT") if hasattr(events, "BRANCH_LEFT") else ("BRANCH",)
        return {getattr(events, jump): "branch" for jump in jumps} | {
            events.PY_START: "begins",
            events.PY_RESUME: "resumes",
            events.PY_THROW: "thrown",
            events.PY_RETURN: "returns",
            events.PY_YIELD: "yields",
            events.PY_UNWIND: "unwinds",
            events.RAISE: "raised",
            events.EXCEPTION_HANDLED: "handled",
            events.LINE: "line",
        }

    def _register(self) -> None:
        """Register the callbacks. They are what the path costs: flat functions, and what does not change is a local name."""
        silent, disable, ident, frame_at = self.box.silent, _MONITORING.DISABLE, get_ident, sys._getframe
        numbers, logs, suspects = self._numbers, self._logs, self._suspects
        number_of, log_of, full, trouble, awaiting = numbers.get, logs.get, self._full, self._trouble, self._awaiting
        pending = awaiting.frames

        def branch(code: CodeType, offset: int, target: int) -> Any:
            try:
                if silent:
                    return disable
                log = log_of(ident())
                if log is None:
                    return None
                if offset in suspects:
                    of = suspects[offset]
                    if (of is None or id(code) in of) and self._is_hot(code, offset, log):
                        return disable
                log.extend((offset, target))
                if len(log) > _FULL:
                    full(frame_at(1))
            except BaseException:
                trouble()
            return None

        def begins(code: CodeType, _offset: int) -> Any:
            try:
                if silent:
                    return disable
                known = number_of(id(code))
                if known is None:
                    known = self._begins_first(code, frame_at(1))
                    if known is None:
                        return disable
                log = log_of(ident())
                if log is None:
                    return self._share()
                try:
                    frame = frame_at(2)  # the frame of the function itself would have to be made
                except ValueError:
                    frame = None
                while frame is not None and id(frame.f_code) not in numbers:
                    frame = frame.f_back
                log.extend((_ENTER + known, 0 if frame is None else frame.f_lasti + 1))
                if len(log) > _FULL:
                    full(frame_at(1))
            except BaseException:
                trouble()
            return None

        def resumes(code: CodeType, _offset: int) -> Any:
            try:
                if silent:
                    return disable
                log, known = log_of(ident()), number_of(id(code))
                if known is None:
                    return None
                if log is None:
                    return self._share()
                if pending:
                    return self._thrown(log, frame_at(1))
                try:
                    frame = frame_at(2)  # the frame of the function itself would have to be made
                except ValueError:
                    frame = None
                while frame is not None and id(frame.f_code) not in numbers:
                    frame = frame.f_back
                log.extend((_RESUME + known, 0 if frame is None else frame.f_lasti + 1))
                if len(log) > _FULL:
                    full(frame_at(1))
            except BaseException:
                trouble()
            return None

        def thrown(code: CodeType, _offset: int, _error: BaseException) -> Any:
            if not silent and id(code) in numbers:
                try:
                    log = log_of(ident())
                    if log is None:
                        return self._share()
                    self._thrown(log, frame_at(1))
                except BaseException:
                    trouble()
            return None

        def leaves(kind: int) -> Callable[..., Any]:
            def left(_code: CodeType, offset: int, _value: Any) -> Any:
                try:
                    if silent:
                        return disable
                    log = log_of(ident())
                    if log is not None:
                        log.extend((kind + offset, 0))
                        if pending and kind == _YIELD:
                            log.extend((_YIELD, 0) * awaiting.suspend(ident(), frame_at(1)))
                except BaseException:
                    trouble()
                return None

            return left

        def unwinds(code: CodeType, offset: int, error: BaseException) -> None:
            if id(code) in numbers and not silent:
                try:
                    log = log_of(ident())
                    if log is not None:
                        if not 0 <= offset <= MOST:
                            offset = 0
                        log.extend((_UNWIND + offset, self._text(type(error).__name__)))
                        self._has_left(frame_at(1).f_back)
                except BaseException:
                    trouble()

        def meets(kind: int) -> Callable[..., None]:
            def met(code: CodeType, offset: int, error: BaseException) -> None:
                if id(code) in numbers and not silent:
                    try:
                        self._exception(kind, code, offset, error, frame_at(1))
                    except BaseException:
                        trouble()

            return met

        def line(code: CodeType, number: int) -> Any:
            if silent:
                return disable
            try:
                self._handles(code, number)
            except BaseException:
                trouble()
            return None

        made: dict[str, Callable[..., Any]] = {f.__name__: f for f in (branch, begins, resumes, thrown, unwinds, line)}
        made |= {
            "returns": leaves(_RETURN),
            "yields": leaves(_YIELD),
            "raised": meets(_RAISE),
            "handled": meets(_HANDLED),
        }
        for event, name in self._callbacks().items():
            _MONITORING.register_callback(self._tool, event, hide(made[name], below=True))
        self._careful, self._is_plain = branch, False

    def _plain(self, log: list[int]) -> Any:
        """The callback of decisions where nothing is suspected, and the main thread alone runs what is recorded."""
        silent, disable, full, trouble, frame_at = (
            self.box.silent,
            _MONITORING.DISABLE,
            self._full,
            self._trouble,
            sys._getframe,
        )
        extend = log.extend

        def branch(_code: CodeType, offset: int, target: int) -> Any:
            try:
                if silent:
                    return disable
                extend((offset, target))
                if len(log) > _FULL:
                    full(frame_at(1))
            except BaseException:
                trouble()
            return None

        return hide(branch, below=True)

    def _choose(self) -> None:
        """Register the callback of decisions that is enough now."""
        plain = not self._suspects and not self._shared and list(self._logs) == [self._main]
        if plain != self._is_plain and self._is_plain is not None:
            self._is_plain = plain
            branch = self._plain(self._logs[self._main]) if plain else self._careful
            for event, name in self._callbacks().items():
                if name == "branch":
                    _MONITORING.register_callback(self._tool, event, branch)

    def _share(self) -> None:
        """A thread without a list runs code that is recorded."""
        self._shared = True
        self._choose()

    def _look_at_threads(self) -> None:
        """Whether other threads are within code that is recorded, that began before its events were on."""
        for ident in list(sys._current_frames()):
            if ident != self._main and any(id(frame.f_code) in self._numbers for frame in frames_of(ident, _DEPTH)):
                self._shared = True
        self._choose()

    def _exception(self, kind: int, code: CodeType, offset: int, error: BaseException, frame: FrameType) -> None:
        log = self._logs.get(get_ident())
        if log is None:
            return
        known = self._numbers[id(code)]
        data, trace = code.co_code, error.__traceback__
        if not 0 <= offset < len(data):  # the function had not begun
            offset = 0
        if kind == _HANDLED and data[offset] == _RERAISES:
            return  # by ``await`` itself, for what it waits for: it only passes the exception on
        if kind == _RAISE:
            op = data[offset]
            if op in _ITERATES and isinstance(error, StopIteration):
                return  # a loop has ended: it is no exception of the program's
            inner = trace and trace.tb_next
            if op == _BEGINS or (inner and inner.tb_frame.f_code.co_filename == __file__):
                # A handler of a signal raised it, before the function had begun, or in a callback of ours.
                self._break(self._threads[get_ident()])
        place = known << BITS | offset
        self._raised[place] = times = self._raised[place] + 1
        if times > _HOT:
            if times == _HOT + 1:
                self._any_hot = True
                log.extend((_LOCATED + known, offset))
            return
        log.extend((kind + offset, self._text(type(error).__name__)))
        if kind == _HANDLED:
            if place not in self._handlers and len(self._handlers) < _HANDLERS:
                self._handlers[place] = 0
                self._watched[id(code)] = place
                _MONITORING.set_local_events(self._tool, code, self._local_events() | _MONITORING.events.LINE)
            # Python could not call us in the deepest functions.
            if isinstance(error, RecursionError):
                self._break(self._threads[get_ident()])
            if self._threads[get_ident()].is_stale:
                self._base(self._threads[get_ident()], frame)
        if len(log) > _FULL:
            self._full(frame)

    def _thrown(self, log: list[int], frame: FrameType) -> None:
        """An exception is thrown into a function, or one resumes after that."""
        awaiting = self._awaiting.resume(get_ident(), frame, self._numbers)
        if awaiting is None:
            return
        frames = [*awaiting, frame]
        sites = [self._site(frames[0].f_back), *(site_of_await(one) + 1 for one in awaiting)]
        for one, site in zip(frames, sites, strict=True):
            log.extend((_RESUME + self._numbers[id(one.f_code)], site))

    def _has_left(self, frame: FrameType | None) -> None:
        """An exception has left a function. If it has left all, it may be the end of the program."""
        if not self._site(frame):
            self._flush(self._threads[get_ident()])

    def _handles(self, code: CodeType, line: int) -> None:
        """A line runs after an exception was handled for the first time at a place. The first may be that of an ``except`` of others."""
        error = sys.exception()
        place = self._watched.get(id(code))
        if error is not None and place is not None:
            self._handled.record(error, Site(code.co_filename, line, code.co_name))
            self._handlers[place] += 1
            if self._handlers[place] < _HANDLER_LINES:
                return
        self._watched.pop(id(code), None)
        _MONITORING.set_local_events(self._tool, code, self._local_events())

    # -- the code

    def _is_recorded(self, code: CodeType, frame: FrameType) -> bool:
        file = code.co_filename
        if file[:1] == "<":
            return is_user_file(file) and is_user_file(_origin(frame))
        mine = self._files.get(file)
        if mine is None:
            mine = is_user_file(file)
            if len(self._files) < _CODES:
                self._files[file] = mine
        return mine

    def _begins_first(self, code: CodeType, frame: FrameType) -> int | None:
        """The number of code that is not known; None: it is not recorded."""
        if not self._is_recorded(code, frame) or id(code) in self._dark:
            return None
        return self._number_of(code)

    def _number_of(self, code: CodeType, *, user: bool = True) -> int | None:
        """The number of the user's code, of which events are recorded from here on; None: there is no room."""
        known = self._numbers.get(id(code))
        if known is not None:
            return known
        if len(self._kept) >= _CODES:
            self._miss("there are too many functions.")
            return None
        if len(code.co_code) > MOST:
            self._miss("a function is too long.")
            return None
        key = code.co_filename, code  # the same text may be compiled again and again
        known = self._by_code.get(key)
        if known is None:
            known = len(self._by_code)
            if not user:
                self._libraries.add(known)
            if not self._say_code(known, code):
                self._miss("there is no room for all functions.")
                return None
            self._by_code[key] = known
        self._kept.append(code)
        self._numbers[id(code)] = known
        _MONITORING.set_local_events(self._tool, code, self._local_events())
        return known

    def _say_code(self, known: int, code: CodeType) -> bool:
        """Describe code in the file; where that would take too long now, only name it."""
        assert self._file is not None
        if not self._may_describe:
            self._undescribed.append((known, code))
            name = code.co_filename, code.co_qualname[:MAX_NAME], code.co_firstlineno
            return self._file.say("code", known, *name, "", known not in self._libraries, (), (), ())
        began = thread_time()
        whole = described(code, user=known not in self._libraries)
        said = self._file.say(
            "code", known, whole.file, whole.function[:MAX_NAME], whole.line, whole.digest, whole.user,
            [astuple(block) for block in whole.blocks], [astuple(branch) for branch in whole.branches], whole.lines,
            whole.copies,
        )  # fmt: skip
        self._describing_s += thread_time() - began
        return said

    @property
    def _may_describe(self) -> bool:
        return self._describing_s < _DESCRIBING_S + _DESCRIBING_SHARE * (perf_counter() - self._began)

    def _describe(self) -> None:
        """Describe one function that was only named."""
        with suppress(IndexError):  # another thread was faster
            self._say_code(*self._undescribed.pop())

    def _text(self, text: str) -> int:
        """The number of a text; 0, which is none, when there is no room."""
        known = self._texts.get(text) if text else 0
        if known is None:
            known = 0
            if self._file is not None and len(self._texts) < _TEXTS:
                with self._writing:
                    if text not in self._texts and self._file.say("text", text[:MAX_NAME]):
                        self._texts[text] = len(self._texts) + 1
                    known = self._texts.get(text, 0)
        return known

    # -- stacks

    def _site(self, frame: FrameType | None) -> int:
        """The site of the nearest recorded frame."""
        numbers = self._numbers
        while frame is not None and id(frame.f_code) not in numbers:
            frame = frame.f_back
        return 0 if frame is None else frame.f_lasti + 1

    def _base(self, thread: _Thread, frame: FrameType | None) -> None:
        """Write the open frames of this thread, from this one."""
        numbers = self._numbers
        frames: list[int] = []
        while frame is not None:
            known = numbers.get(id(frame.f_code))
            if known is not None:
                frames += (max(0, frame.f_lasti), _FRAME + known)
            frame = frame.f_back
        thread.base = len(frames) // 2
        thread.log += (_BASE + thread.base, 0, *reversed(frames))
        thread.is_stale = False
        thread.written = -len(thread.log) // 2

    def _break(self, thread: _Thread) -> None:
        """What follows may not fit to what came before, until the open frames are written again."""
        thread.log.extend(_GAP)
        thread.is_stale = True

    def _trouble(self) -> None:
        """A callback was ended by an exception: by a handler of a signal, which raises it, or since there is no more stack."""
        error = sys.exception()
        thread = self._threads.get(get_ident())
        if thread is not None and error is not None and (isinstance(error, RecursionError) or of_handler(error)):
            self._break(thread)
        if not isinstance(error, RecursionError):
            self.fail()

    # -- hot code

    def _is_hot(self, code: CodeType, offset: int, log: list[int]) -> bool:
        """Whether this jump is not recorded any more."""
        known = self._numbers.get(id(code))
        if known is None:
            return True
        place = id(code), offset
        times = self._hot[place] = self._hot.get(place, 0) + 1
        if times < self._most(known):
            return False
        if place not in self._off:
            self._off.add(place)
            self._any_hot = True
            log.extend((_LOCATED + known, offset))
        return True

    def _most(self, known: int | None) -> int:
        return _OFTEN if self._dear else _HOT_LEADING if known in self._leading else _HOT

    def _settle(self) -> None:
        """A collective has come: what was not hot before it is no longer suspected."""
        for place in [place for place, times in self._hot.items() if times < self._most(self._numbers.get(place[0]))]:
            del self._hot[place]
        self._suspects.clear()
        for ident, offset in self._hot:
            known = self._suspects.setdefault(offset, set())
            if known is not None:
                known.add(ident)
        self._choose()

    def _thin(self, thread: _Thread, frame: FrameType) -> None:
        """Of what came since the last collective, what came often is to be recorded no more."""
        times = {one: count for one, count in Counter(thread.log[::2]).items() if count >= _OFTEN}
        self._suspects.update(dict.fromkeys(one for one in times if one <= MOST))
        self._choose()
        codes = {one & MOST for one in times if one & ~MOST in (_ENTER, _RESUME)} - self._leading
        if self._libraries:  # of packages nothing is recorded then: the user's own code comes first
            codes |= {one & MOST for one in thread.log[::2] if one & ~MOST in (_ENTER, _RESUME)} & self._libraries
        if codes:
            self._darken(codes, thread, frame)

    def _full(self, frame: FrameType) -> None:
        """Many words have come since the last collective: find what is hot, and write them."""
        thread = self._threads[get_ident()]
        counts = thread.counts
        counts.update(thread.log[::2])
        codes: set[int] = set()
        for one, times in counts.items():
            if times >= _HOT:
                if one <= MOST:
                    self._suspects[one] = None
                elif one & ~MOST in (_ENTER, _RESUME) and (times >= _HOT_LEADING or one & MOST not in self._leading):
                    codes.add(one & MOST)
        self._choose()
        if codes:
            self._darken(codes, thread, frame)
        self._flush(thread)

    def _darken(self, codes: set[int], thread: _Thread, frame: FrameType) -> None:
        """Record nothing of these functions from here on."""
        self._any_hot = True
        for code in self._kept:
            if self._numbers.get(id(code)) in codes:
                self._dark[id(code)] = code, self._numbers[id(code)]
                _MONITORING.set_local_events(self._tool, code, 0)
        for key in self._dark:
            self._numbers.pop(key, None)
        for code in codes:
            thread.log += (_LOCATED + code, MOST)
        self._base(thread, frame)
        self._break_others(thread)
        for one in [one for one in thread.counts if one & ~MOST in (_ENTER, _RESUME) and one & MOST in codes]:
            del thread.counts[one]

    def _cool(self, thread: _Thread, frame: FrameType) -> None:
        """Record all again."""
        for code, known in self._dark.values():
            self._numbers[id(code)] = known
            _MONITORING.set_local_events(self._tool, code, self._local_events())
        if self._dark:  # they begin with an event of all code: that comes back in all code, which costs up to 1 ms
            _MONITORING.restart_events()
        else:
            jumping = {ident for ident, _ in self._off}
            for code in [code for code in self._kept if id(code) in jumping] if jumping else ():
                _MONITORING.set_local_events(self._tool, code, 0)
                _MONITORING.set_local_events(self._tool, code, self._local_events())
        self._dark.clear()
        self._off.clear()
        self._suspects.clear()
        self._hot.clear()
        self._raised.clear()
        self._any_hot = False
        thread.log.extend(_COLD)
        self._base(thread, frame)
        self._break_others(thread)
        self._look_at_threads()

    def _look_at_libraries(self, thread: _Thread, frame: FrameType | None) -> None:
        """Record the functions of packages that lead to a collective here, from here on."""
        while frame is not None and not is_library_frame(frame):
            if id(frame.f_code) in self._numbers:
                return
            frame = frame.f_back
        if frame is None or (id(frame.f_code), frame.f_lasti) in self._stood or len(self._stood) >= _SITES:
            return
        self._stood.add((id(frame.f_code), frame.f_lasti))
        inner, found, between = frame, False, list[CodeType]()
        while frame is not None:
            ident = id(frame.f_code)
            if is_library_frame(frame):
                if ident not in self._numbers and ident not in self._dark:
                    between.append(frame.f_code)
            elif ident in self._numbers or ident in self._dark:  # what runs the user's program is none of its packages
                for code in between:
                    found = self._number_of(code, user=False) is not None or found
                between.clear()
            frame = frame.f_back
        if found:
            thread.log.extend(_COLD)
            self._base(thread, inner)
            self._break_others(thread)
            self._look_at_threads()
            _MONITORING.restart_events()  # that they begin was of no interest before

    def _leads(self, frame: FrameType | None) -> bool:
        """Note which functions have led to a collective here; whether one of them was hot as if it did not."""
        found = False
        while frame is not None:
            ident = id(frame.f_code)
            dark = self._dark.get(ident)
            known = self._numbers.get(ident) if dark is None else dark[1]
            if known is not None and known not in self._leading and known not in self._libraries:
                self._leading.add(known)
                hot = any(times >= _HOT for (of, _), times in self._hot.items() if of == ident)
                found = found or hot or dark is not None
            frame = frame.f_back
        return found

    def _break_others(self, mine: _Thread) -> None:
        """The frames of other threads that are recorded are others now."""
        for thread in list(self._threads.values()):
            if thread is not mine:
                self._break(thread)

    # -- what the program does

    def _thread_here(self) -> _Thread | None:
        """The thread to whose path a call from here belongs: the main thread's, if C++ has started this one."""
        ident = get_ident()
        thread = self._threads.get(ident)
        if thread is not None:
            return thread
        mine = threading._active.get(ident)  # type: ignore[attr-defined]
        if mine is None or str(getattr(mine, "_name", "")).startswith("Dummy-"):  # what Python calls one of C++
            return self._threads.get(self._main)
        thread = self._add_thread(ident)
        if thread is not None:
            self._base(thread, sys._getframe(1))
        return thread

    def _add_thread(self, ident: int) -> _Thread | None:
        if len(self._threads) >= _THREADS:
            self._miss("too many threads make collectives.")
            return None
        name = getattr(threading._active.get(ident), "_name", "")  # type: ignore[attr-defined]
        if self._file is None or not self._file.say("thread", str(name)[:MAX_NAME]):
            return None
        thread = self._threads[ident] = _Thread(ident, len(self._threads))
        self._logs[ident] = thread.log
        self._choose()
        return thread

    def _call(self, operation: str, group: int, seq: int, peer: int | None) -> None:
        thread = self._thread_here() if self._logs and not self.box.silent else None
        if thread is None:
            return
        here = thread.ident == get_ident()
        frame: FrameType | None = sys._getframe(1)
        if here:
            if (self._any_hot or thread.counts) and self._leads(frame):
                self._cool(thread, frame)
            elif thread.is_stale:
                self._base(thread, frame)
            site = self._site(frame)
        else:
            site = next((s for f in frames_of(thread.ident) if (s := self._site_of(f))), 0)
        log = thread.log
        behind = (_NUMBER + (seq & MOST), seq >> BITS & MOST) if peer is None else packed(number(seq, peer))
        log += (_CALL + site, self._text(operation) | group << BITS, *behind)
        if here:
            self._look_at_libraries(thread, frame)
            if thread.counts or self._dear:
                thread.counts.clear()
                self._settle()
            if self._raised:
                for place in [place for place, times in self._raised.items() if times <= _HOT]:
                    del self._raised[place]
            if self._any_hot:
                now = perf_counter()
                if now - self._cooled > self._pause:
                    self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
                    self._cool(thread, frame)
                    self._cooled = now
            self._words += _CALL_WORDS
            if self._words > _FREE_WORDS:
                self._dear = self._words * _WORD_S > _FREE_S + _SHARE * (perf_counter() - self._began)
                if self._dear and frame is not None and len(log) > 8 * _OFTEN:
                    self._thin(thread, frame)
            if thread.written + len(log) // 2 > max(_BASE_EVERY, 8 * thread.base):
                self._base(thread, frame)
        self._flush(thread)
        if self._undescribed and self._may_describe:
            self._describe()

    def _site_of(self, frame: FrameType) -> int:
        return frame.f_lasti + 1 if id(frame.f_code) in self._numbers else 0

    def _called(self, _number: int, operation: str, group: KnownGroup, seq: int, peer: int | None) -> None:
        """A collective is about to be made."""
        try:
            identity = group.identity
            known = self._groups.get(id(identity))
            if known is None:
                if len(self._groups) >= _TEXTS:
                    self._groups.clear()
                known = self._groups[id(identity)] = identity, self._text(_named(identity))
            self._call(operation, known[1], seq, peer)
        except BaseException:
            self._trouble()

    def _of_group(self, operation: str, group: Group | None) -> None:
        """A group is about to be made or destroyed."""
        try:
            self._call(operation, self._text(_named(group) if group is not None else ""), 0, None)
        except BaseException:
            self._trouble()

    def _mark(self, what: str) -> None:
        """A step of an optimizer, or an iteration of a loader."""
        try:
            log = self._logs.get(get_ident())
            if log is not None and not self.box.silent:
                log.extend((_MARK + self._site(sys._getframe(1)), self._text(what)))
        except BaseException:
            self._trouble()

    def _flush(self, thread: _Thread) -> None:
        """Write the words of a thread. Where somebody else does that now, they wait."""
        lock = self._writing
        if self._file is None or not lock.acquire(blocking=False):
            return
        try:
            numbers = array("I", thread.log)
            if numbers:
                words = array("Q", numbers.tobytes())
                thread.written += len(words)
                self._words += len(words)
                self._file.write(thread.place, words)
                del thread.log[: len(numbers)]
        finally:
            while is_mine(lock):  # also of a call that a signal handler ended while it held it
                lock.release()


def _origin(frame: FrameType) -> str:
    """The file to which text that was compiled belongs: that of its module, else that of the code which runs it."""
    file = file_of(frame)
    above = frame.f_back
    while file[:1] == "<" and above is not None:
        file, above = above.f_code.co_filename, above.f_back
    return file


def _named(group: Group) -> str:
    """A group in words that mean the same group on all ranks."""
    if group.label in ("", "default_pg"):
        return group.title
    times = f" #{group.ordinal + 1}" if group.ordinal else ""
    return f"{group} {listed(group.ranks)}{times}"
