"""Find the current line of user code, skipping frames of libraries, torch and ddpnb."""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from itertools import accumulate, chain, islice, repeat
from operator import itemgetter
from types import CodeType, FrameType
from typing import Any

_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
# File name of wrappers that warnings step over: CPython skips frames whose file name has both words.
STEPPED_OVER = "<ddpnb importlib._bootstrap>"
_LESSONS = os.path.join(_HERE, "pitfalls") + os.sep  # scripts that come with us, but are run as a user's


def _folder_of(package: str) -> str:
    """Where a package lies, without importing it: a launcher asks too, and needs no torch."""
    spec = find_spec(package)
    return os.path.dirname(os.path.abspath(spec.origin)) + os.sep if spec and spec.origin else f"<no {package}>"


_TORCH = _folder_of("torch")
# The compiler, once it is imported, calls some functions of torch for the user.
_COMPILER = (os.path.join(_TORCH, "_compile.py"), os.path.join(_TORCH, "_dynamo", ""))


def _library_folders() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names}
    folders.update(site.getsitepackages())
    folders.add(site.getusersitepackages())
    return tuple({os.path.realpath(f) + os.sep for f in folders if f} | {f + os.sep for f in folders if f})


_LIBRARIES = (_HERE, _TORCH, *_library_folders())
_STDLIB = tuple(
    {os.path.join(f(sysconfig.get_path(n)), "") for n in ("stdlib", "platstdlib") for f in (str, os.path.realpath)}
)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")  # packages may lie inside it


# What torch.compile and torch.fx write: text of no file, and inductor's modules in its cache.
_GRAPH, _INDUCTOR = "<eval_with_key>", f"{os.sep}torchinductor_"


def is_generated(path: str) -> bool:
    """Whether torch has written this code."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return path.startswith(_GRAPH) or _INDUCTOR in path or (bool(cache) and path.startswith(os.path.join(cache, "")))


def is_own_file(path: str) -> bool:
    """Whether ``path`` is ddpnb's own code."""
    return path == STEPPED_OVER or (path.startswith(_HERE) and not path.startswith(_LESSONS))


@lru_cache(maxsize=4096)
def is_user_file(path: str) -> bool:
    """Whether ``path`` is the user's own: not installed, not the standard library, not ddpnb, not written by torch."""
    if path.startswith(_LESSONS):
        return True
    if any(
        part in path for part in _INSTALLED
    ):  # also of another environment, which a .pth file or PYTHONPATH has added
        return False
    return not (path == STEPPED_OVER or path.startswith(("<frozen", *_LIBRARIES)) or is_generated(path))


@lru_cache(maxsize=4096)
def is_torch_file(path: str) -> bool:
    return path.startswith((_TORCH, "<frozen")) or is_own_file(path) or is_generated(path)


def file_of(frame: FrameType) -> str:
    """The file to which the code of a frame belongs: of generated text, that of the module in which it runs, if it has one.

    The methods of a data class are such text: their own file name, <string>, is also that of ``python -c``.
    """
    path = frame.f_code.co_filename
    if path[:1] == "<" and not path.startswith("<frozen"):
        module = frame.f_globals.get("__file__")
        if type(module) is str:
            return module
    return path


def is_user_frame(frame: FrameType) -> bool:
    """Whether a frame runs the user's own code."""
    return is_user_file(file_of(frame))


def called_by_user(depth: int) -> bool:
    """Whether the caller that is so many frames up is the user's own code, and not a library; what the compiler wraps is passed over."""
    frame = _frame_at(depth + 1)
    while frame is not None and (is_own_frame(frame) or frame.f_code.co_filename.startswith(_COMPILER)):
        frame = frame.f_back
    return frame is not None and is_user_frame(frame)


def is_own_frame(frame: FrameType) -> bool:
    """Whether a frame runs ddpnb's own code."""
    return is_own_file(file_of(frame))


class CodeKinds:
    """The kinds of code objects, by their ids: hashing one costs more than a walk over frames.

    It keeps none of them, and forgets those that are freed: torch's compiler cleans up after its own, which must not be late.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, int] = {}
        self._codes: dict[int, weakref.ref[CodeType]] = {}

    def add(self, code: CodeType, kind: int) -> None:
        if len(self.by_id) < 20_000:
            key = id(code)
            self.by_id[key] = kind
            self._codes[key] = weakref.ref(code, lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self.by_id.pop(key, None)
        self._codes.pop(key, None)


# Torch's and ours, a library's, the user's, the standard library's.
_OURS, _LIBRARY, _USER, _STANDARD = 1, 2, 3, 4
_codes = CodeKinds()
_kinds = _codes.by_id


def _kind(frame: FrameType) -> int:
    code, path = frame.f_code, file_of(frame)
    kind = _OURS if is_torch_file(path) else _USER if is_user_file(path) else _LIBRARY
    if kind == _LIBRARY and path.startswith(_STDLIB) and not any(part in path for part in _INSTALLED):
        kind = _STANDARD
    _codes.add(code, kind)
    return kind


def is_library_frame(frame: FrameType) -> bool:
    """Whether a frame runs code of an installed package other than torch."""
    return (_kinds.get(id(frame.f_code)) or _kind(frame)) == _LIBRARY


def _frame_at(depth: int) -> FrameType | None:
    """A frame of this thread; None: it has fewer, since a thread of C++ (autograd's, of a device) has no Python caller."""
    try:
        return sys._getframe(depth)
    except ValueError:
        return None


def calling_frame(depth: int = 1) -> FrameType | None:
    """The innermost frame of the user's code, else the innermost of an installed package other than torch, else nothing.

    A collective that DDP starts from autograd's own thread has no Python caller there: the main
    thread's frame, which sits in ``backward()``, is the answer then. A thread of Python has one, the standard library:
    what the main thread does meanwhile has nothing to do with it.
    """
    return calling_frame_from(_frame_at(depth + 1))


def calling_frame_from(frame: FrameType | None) -> FrameType | None:
    """The same, from the innermost frame that is looked at; None: the thread runs no Python."""
    outside: FrameType | None = None
    called = False
    kinds = _kinds
    while frame is not None:
        kind = kinds.get(id(frame.f_code)) or _kind(frame)
        if kind == _USER:
            return frame
        if kind == _LIBRARY and outside is None:
            outside = frame
        called = called or kind == _STANDARD
        frame = frame.f_back
    if outside is None and not called and threading.current_thread() is not threading.main_thread():
        main = frames_of(threading.main_thread().ident or 0)
        return next((f for f in main if _kind(f) == _USER and not f.f_code.co_flags & _GENERATOR), None)
    return outside


def library_of(frame: FrameType | None) -> str:
    """The public module of torch in which the thread of a frame began; empty where that is none: ``torch.distributed.checkpoint``."""
    name = ""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if isinstance(module, str) and module.startswith("torch."):
            name = module
        frame = frame.f_back
    parts = name.split(".")
    return ".".join(parts[: next((n for n, part in enumerate(parts) if part.startswith("_")), len(parts))])


_WALK = 1000  # frames that are looked at
# The threads that are held, and of some the frames that are shown in place of their own: those that an exception has left.
_held: dict[int, None] = {}
_instead: dict[int, Sequence[FrameType]] = {}
_GENERATOR = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR  # the caller of a generator is known only while it runs


def frames_of(ident: int, most: int = _WALK) -> list[FrameType]:
    """The innermost ``most`` frames of a thread, innermost first, as they are at one moment; empty when there is no such thread.

    All of it happens inside C, where the interpreter lock is not handed over: in CPython 3.11 the
    frame of a generator that has yielded meanwhile points to a caller that is no more, and to follow
    it is a segmentation fault.
    """
    instead = _instead.get(ident)
    if instead is not None:
        return list(instead[:most])
    frames: list[Any] = []
    now = map(itemgetter(ident), islice(iter(sys._current_frames, None), 1))
    with contextlib.suppress(AttributeError, KeyError):  # the outermost has no caller; or there is no such thread
        frames.extend(accumulate(chain(now, repeat("f_back", most - 1)), getattr))
    return [frame for frame in frames if frame is not None]


def note_held(ident: int, held: bool, instead: Sequence[FrameType] = ()) -> None:
    """A thread is held, or no longer; ``instead``: the frames that an exception has left, innermost first."""
    _held.pop(ident, None)
    _instead.pop(ident, None)
    if held:
        _held[ident] = None
        if instead:
            _instead[ident] = instead


def looked_at() -> int:
    """The thread whose frames a user looks at: the main thread, unless another one alone is held."""
    main, held = threading.main_thread().ident or 0, list(_held)
    return main if main in held or not held else held[0]


def place_of(frame: FrameType) -> dict[str, Any]:
    """Where a frame is, as facts."""
    code = frame.f_code
    return {"file": code.co_filename, "line": frame.f_lineno, "function": code.co_name}


def user_path(most: int) -> list[tuple[str, int, str]]:
    """File, line and function of the user's frames in this thread, outermost first; of more than ``most`` the innermost."""
    found: list[tuple[str, int, str]] = []
    frame = sys._getframe(1)
    while frame is not None and len(found) < most:
        if is_user_frame(frame):
            code = frame.f_code
            found.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return found[::-1]
