"""Run a script or a cell as ``python`` would, and describe how it ended."""

from __future__ import annotations

import ast
import builtins
import io
import os
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from types import FrameType, ModuleType, TracebackType
from typing import Any

from ddpnb.errors import CollectiveMismatch, Released
from ddpnb.recorder.files.clock import now_ns
from ddpnb.recorder.holds.release import Release
from ddpnb.recorder.process import exit_codes
from ddpnb.recorder.process.displays import last_expression
from ddpnb.recorder.process.process_state import OwnBuiltins, flush
from ddpnb.recorder.stacks.locals import LOOK_S, describe_locals
from ddpnb.recorder.stacks.user_frames import is_own_frame, is_user_frame
from ddpnb.recorder.stacks.values import Allowance
from ddpnb.recording.stacks import MAX_FRAMES

_LONGEST_MESSAGE = 4000
_NO_GROUP = (
    re.compile("Default process group has not been initialized"),
    "ddpnb: the ranks have no process group that can be used, from world.init() or an earlier cell. Call init_process_group() in "
    "this one, or world.rebuild() before it.",
)
_OLD_GROUP = (
    re.compile("is not initialized in the world group map|Invalid process group specified"),
    "ddpnb: if this process group is older than the default one, which world.rebuild() or a restart has created again, "
    "create it again with new_group().",
)
_USED_PROCESS = (
    re.compile(
        "number of interop threads|interactive environment|context has already been set|only (?:be )?(?:called|set) once"
        "|already been (?:initialized|registered)|more than once per process"
    ),
    "ddpnb: the processes of a World run one script after the other. If this is the reason, "
    "world.run(SCRIPT, fresh=True) runs the script in new processes.",
)


@dataclass
class Ended:
    """How the code ended: the JSON of ``model.ending.Ending`` and, for a function, its result."""

    ending: dict[str, Any]
    result: Any = None


def run(code: Callable[[], Any], release: Release) -> Ended:
    """Call ``code`` as the main program and say how it ended. Never raises.

    What the code put in the place of builtins stays: its threads, atexit callbacks and later cells rely on it.
    """
    pid = os.getpid()
    result, left, failure = None, None, None
    try:
        with release.inside():
            result = code()
    except SystemExit as error:
        left = error
    except BaseException as error:  # KeyboardInterrupt is raised by the user's code here
        failure = error
    try:
        if left is None and failure is None and os.getpid() == pid:
            return Ended({"how": "finished", "code": 0, "at_ns": now_ns()}, result)
        with OwnBuiltins():
            if left is not None:
                _show(left)
            told = exit_codes.told(_code_of(left)) if left is not None else {"code": int(failure is not None)}
            status = told["code"]
            if os.getpid() != pid:
                _leave_child(status, failure)
            how = "exited" if left is not None else "raised"
            ending: dict[str, Any] = {"how": how, **told, "at_ns": now_ns()}
            if failure is not None:
                ending |= _described(failure, release)
            elif left is not None and status:
                ending["frames"] = _frames(_skip_own(left.__traceback__))
                last: Any = _code_of(left)
                ending["message"] = str.__str__(last)[:_LONGEST_MESSAGE] if issubclass(type(last), str) else ""
        return Ended(ending, result)
    finally:
        left = failure = None  # this frame is in their tracebacks: they would keep each other, and what the frames hold


def _described(failure: BaseException, release: Release) -> dict[str, Any]:
    """The exception, which is printed too, as Python does."""
    found = described(failure, release)
    with suppress(Exception):  # the script closed or replaced the stream
        print(found["traceback"], end="", file=sys.stderr)
    return found


def described(failure: BaseException, release: Release) -> dict[str, Any]:
    """The exception that ended the script: its class, message, frames with variables, and traceback."""
    try:
        return _describe(_first_cause(release.convert_last(failure)))
    except BaseException as error:  # a user's exception class may raise wherever it is read
        return _described_at_least(failure, error)


def _show(error: SystemExit) -> None:
    """Print the code as Python does where it is neither a number nor None."""
    code = _code_of(error)
    if code is not None and exit_codes.as_number(code) is None:
        with suppress(Exception):  # the script closed or replaced the stream
            print(_text(code), file=sys.stderr)


def _code_of(error: SystemExit) -> object:
    try:
        return error.code
    except BaseException:  # a property of a user's class
        return 1


def _text(value: object) -> str:
    """``str(value)``, or what kind of thing it is where that raises."""
    try:
        return str(value)
    except BaseException as error:
        return f"<{type(value).__name__}: its text cannot be shown, {type(error).__name__}>"


def _leave_child(status: int, failure: BaseException | None) -> None:
    """A process that the script forked has ended the script: it must not continue as a rank."""
    if failure is not None:
        traceback.print_exception(failure)
    for stream in (sys.stdout, sys.stderr):
        flush(stream)
    os._exit(status)


def _first_cause(error: BaseException) -> BaseException:
    """If the fence raised while another exception was handled, describe that one."""
    while isinstance(error, CollectiveMismatch) and error.__context__ is not None:
        error = error.__context__
    return error


def _describe(error: BaseException) -> dict[str, Any]:
    """The exception with the user's frames, without those of ddpnb."""
    trace = _skip_own(error.__traceback__)
    frames = _frames(trace)
    if isinstance(error, SyntaxError) and error.filename:
        frames.append({"file": error.filename, "line": error.lineno or 0, "function": "<module>", "user": True})
    summary = traceback.TracebackException(type(error), error, trace)
    # The user's traceback without the frames of ddpnb.
    entries = zip(summary.stack, traceback.walk_tb(trace), strict=False)
    summary.stack = traceback.StackSummary.from_list(entry for entry, (frame, _) in entries if not is_own_frame(frame))
    # Where the fence stopped a call, the diagnosis tells the rest; a release was asked for.
    if isinstance(error, CollectiveMismatch):
        text = f"ddpnb: fence: {error.what}\n"
    elif isinstance(error, Released):
        place = next((f" It was at {f['file']}:{f['line']}." for f in reversed(frames) if f["user"]), "")
        text = f"ddpnb: {error.what}{place}\n"
    else:
        text = "".join(summary.format())
    return {
        "exception": type(error).__name__,
        "message": _text(error)[:_LONGEST_MESSAGE],
        "frames": frames[-MAX_FRAMES:],
        "traceback": text if len(text) < 40_000 else text[:10_000] + "\n[...]\n" + text[-30_000:],
    }


def _described_at_least(error: BaseException, trouble: BaseException) -> dict[str, Any]:
    """What is known of an exception without running its code."""
    frames = []
    for frame, line in _innermost(error.__traceback__):
        code = frame.f_code
        user = is_user_frame(frame)
        frames.append({"file": code.co_filename, "line": line, "function": code.co_name, "user": user})
    name = type(error).__name__
    places = "".join(f'  File "{f["file"]}", line {f["line"]}, in {f["function"]}\n' for f in frames)
    note = f"<its text cannot be shown: {type(trouble).__name__}>"
    return {
        "exception": name,
        "message": note,
        "frames": frames,
        "traceback": f"Traceback (most recent call last):\n{places}{name}: {note}\n",
    }


def _innermost(trace: TracebackType | None) -> deque[tuple[FrameType, int]]:
    """The last frames of a traceback, without ours, and their lines."""
    lines = traceback.walk_tb(trace)
    return deque((entry for entry in lines if not is_own_frame(entry[0])), MAX_FRAMES)


def _frames(trace: TracebackType | None) -> list[dict[str, Any]]:
    frames = []
    allowance = Allowance(LOOK_S)
    for frame, line in reversed(_innermost(trace)):  # innermost first: there may be time for some of them only
        entry: dict[str, Any] = {
            "file": frame.f_code.co_filename,
            "line": line,
            "function": frame.f_code.co_name,
            "user": is_user_frame(frame),
        }
        if entry["user"]:
            entry["locals"] = describe_locals(frame, within=allowance)
        frames.append(entry)
    return frames[::-1]


def _skip_own(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        frame = trace.tb_frame
        if not is_own_frame(frame) and not frame.f_code.co_filename.startswith("<frozen"):
            break
        trace = trace.tb_next
    return trace


def folder_of(path: str) -> str:
    """The folder that ``python path`` puts first on the import path: of the file itself, not of a link to it."""
    return os.path.dirname(os.path.realpath(path))


def script(path: str, arguments: list[str]) -> Callable[[], None]:
    """The main program of ``path`` with these arguments, as ``python path arguments...``."""

    def main() -> None:
        full = os.path.abspath(path)
        sys.argv = [path, *arguments]
        sys.orig_argv = [sys.executable, *sys.argv]
        module = ModuleType("__main__")
        module.__file__ = full  # absolute, as Python has it: spawned workers look for it
        module.__dict__["__builtins__"] = builtins
        module.__dict__["__cached__"] = None
        module.__annotations__ = {}
        module.__loader__ = SourceFileLoader("__main__", full)
        sys.modules["__main__"] = module
        with io.open_code(full) as file:
            program = compile(file.read(), full, "exec", dont_inherit=True)
        exec(program, module.__dict__)

    return main


def cell(path: str, namespace: dict[str, Any], show: Callable[[Any], None] | None = None) -> Callable[[], None]:
    """The lines of ``path`` in a namespace that lives on; a last expression is shown as at a prompt.

    Args:
        path: the file.
        namespace: of the variables.
        show: shows the value of the last expression; without it, its repr is printed.
    """

    def main() -> None:
        with io.open_code(path) as file:
            source = file.read().decode()
        tree = ast.parse(source, path)
        last = last_expression(tree, source)
        namespace.setdefault("__builtins__", builtins)  # exec() would put ours there
        with _working_directory_importable():
            exec(compile(tree, path, "exec", dont_inherit=True), namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), path, "eval", dont_inherit=True), namespace)  # noqa: S307 (the user's own)
                if value is not None:
                    (show or _print)(value)

    return main


def only_statement(path: str) -> dict[str, Any]:
    """The place of the statement of which a cell consists, also inside of ``with``; none if there are several."""
    with suppress(Exception):
        with io.open_code(path) as file:
            body = ast.parse(file.read(), path).body
        while len(body) == 1 and isinstance(body[0], ast.With):
            body = body[0].body
        if len(body) == 1:
            return {"file": path, "line": body[0].lineno, "function": "<module>"}
    return {}


def _print(value: Any) -> None:
    print(repr(value))


def with_hint(code: Callable[[], Any], *, is_script: bool) -> Callable[[], Any]:
    """The same code, which says what helps where it fails because of what earlier code has left on the rank, or not."""
    hints = (_USED_PROCESS,) if is_script else (_NO_GROUP, _OLD_GROUP)

    def main() -> Any:
        try:
            return code()
        except Exception as error:
            for pattern, hint in hints:
                if pattern.search(_text(error)[:_LONGEST_MESSAGE]):
                    error.add_note(hint)
            raise

    return main


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    """Inside, the working directory is on the import path where a notebook has it: before installed packages."""
    packages = (
        i
        for i, folder in enumerate(sys.path)
        if isinstance(folder, str) and os.path.basename(folder) in ("site-packages", "dist-packages")
    )
    sys.path.insert(next(packages, len(sys.path)), "")
    try:
        yield
    finally:
        if "" in sys.path:
            sys.path.remove("")
