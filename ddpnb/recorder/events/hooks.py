"""Hooks on functions of torch: what all hooks except the door share.

A wrapper forwards arguments, results and exceptions untouched. When a hook itself fails, its
set of hooks is removed and the error reported once; the training continues unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import traceback
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any, Generic, TypeVar

import torch

from ddpnb.recorder.events.bindings import rebind
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.stacks.evaluation import sentence
from ddpnb.recorder.stacks.signal_handlers import raise_if_of_handler
from ddpnb.recorder.stacks.user_frames import STEPPED_OVER, calling_frame
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.events import Event
from ddpnb.recording.events.base import Attempt
from ddpnb.recording.events.runs import DoorDetached, FunctionNotFound, HooksDetached

E = TypeVar("E", bound=Event)
A = TypeVar("A", bound=Attempt)
_TRACED = "_torchdynamo_inline"  # what the compiler reads instead of a function, and so never a hook
# Modules whose code is excluded from the compiler, and at the beginning those that run the program's own code.
_HIDDEN = {
    f"ddpnb.recorder.{name}"
    for name in (
        "plain",
        "process.components",
        "process.functions",
        "process.hidden_modules",
        "process.script",
        "process.user_modules",
        "rank",
    )
}
_ALIKE = 4  # how often the same event is recorded: what happens in every step must not fill the box


class Hooks:
    """A set of hooks that are installed and removed together; sub-classes install theirs in ``install``.

    ``put_in_place`` also reaches the modules that have imported the functions by name.
    """

    def __init__(self, box: BlackBox) -> None:
        self.box = box
        self._undo: list[Callable[[], None]] = []
        self._alive = [True]  # empty once removed: wrappers that somebody still holds then only forward
        self._failed = False
        self._seen: Counter[str] = Counter()

    def install(self) -> None:
        """Put the hooks in place."""
        raise NotImplementedError

    def put(self) -> None:
        """Put the hooks in place; where this torch has not what they need, this set of hooks alone is left out."""
        try:
            self.install()
        except Exception as error:
            self.fail()
            self.box.on_new_table.append(functools.partial(self.box.emit, HooksDetached(error=sentence(error))))

    def remove(self) -> None:
        """Put the originals back."""
        self._alive.clear()
        self._alive = [True]  # for hooks that are installed from here on
        while self._undo:
            with contextlib.suppress(Exception):  # the others must come off all the same
                self._undo.pop()()
        with contextlib.suppress(Exception):
            _rebind()

    def new_run(self) -> None:
        """Forget the last run."""
        self._seen.clear()

    def on_removal(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)

    def replace(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace ``owner.name`` by ``make(original)``; does nothing if there is no such name."""
        alive, compiling = self._alive, torch.compiler.is_compiling

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            made = make(original)

            def forwarded(*args: Any, **kwargs: Any) -> Any:
                return original(*args, **kwargs) if compiling() or not alive else made(*args, **kwargs)

            step_over(made)
            hide(made)
            return forwarded

        self._put(owner, name, wrap)

    def before(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        """Call ``look`` with the arguments of every call of ``owner.name``, before it."""
        alive, silent, compiling = self._alive, self.box.silent, torch.compiler.is_compiling

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                if not compiling() and alive and not silent:
                    try:
                        look(*args, **kwargs)
                    except Exception:
                        self.fail()
                return original(*args, **kwargs)

            return watched

        hide(look, below=True)
        self._put(owner, name, wrap)

    def after(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        """Call ``look`` with the result and the arguments of every call of ``owner.name`` that returned."""
        alive, silent, compiling = self._alive, self.box.silent, torch.compiler.is_compiling

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                if not compiling() and alive and not silent:
                    try:
                        look(result, *args, **kwargs)
                    except Exception:
                        self.fail()
                return result

            return watched

        hide(look, below=True)
        self._put(owner, name, wrap)

    def failing(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        """Call ``look`` with the exception and the arguments of every call of ``owner.name`` that raised one."""
        alive, silent, compiling = self._alive, self.box.silent, torch.compiler.is_compiling

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                try:
                    return original(*args, **kwargs)
                except Exception as error:
                    if not compiling() and alive and not silent:
                        try:
                            look(error, *args, **kwargs)
                        except Exception:
                            self.fail()
                    raise

            return watched

        hide(look, below=True)
        self._put(owner, name, wrap)

    def _put(self, owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(owner, name, None)
        if original is None:
            missing = FunctionNotFound(function=full_name(owner, name))
            self.box.on_new_table.append(functools.partial(self.box.emit, missing))  # in each run
            return
        hook = functools.wraps(original)(wrap(original))
        if (
            isinstance(owner, ModuleType) and type(original) is not FunctionType
        ):  # built in, or a method: defined elsewhere
            hook.__module__, hook.__qualname__ = owner.__name__, name
        if isinstance(owner, ModuleType) and type(original) is FunctionType:  # a method would lose its object
            vars(hook).setdefault(_TRACED, original)
        step_over(hook)
        hide(hook)
        _OF_HOOKS[hook] = self._alive, original, name in vars(owner)
        _set(owner, name, hook)
        if isinstance(owner, ModuleType):
            _IN_MODULES.setdefault((id(owner), name), (owner, [original]))[1].append(hook)
        self._undo.append(lambda: _take_away(owner, name, hook))

    def guarded(self, look: Callable[..., None]) -> Callable[..., None]:
        """``look``, with its exceptions caught."""
        alive, silent, compiling = self._alive, self.box.silent, torch.compiler.is_compiling

        def guarded(*args: Any, **kwargs: Any) -> None:
            if compiling() or not alive or silent:
                return
            try:
                look(*args, **kwargs)
            except Exception:
                self.fail()

        return hide(guarded, below=True)

    def fail(self) -> None:
        """A hook failed: remove the hooks and report it, once. Raises only what a signal handler raised."""
        raise_if_of_handler()
        self.remove()
        if not self._failed:
            self._failed = True
            say_failed(self.box, "a hook")

    def emit(self, event: Event, *, depth: int = 2) -> None:
        """Record an event with the user's line; equal events only a few times."""
        try:
            frame = calling_frame(depth + 1)
            line = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
            key = f"{event.title} {event.facts()} {line}"
            if len(self._seen) < 10_000:
                self._seen[key] += 1
                if self._seen[key] <= _ALIKE:
                    self.box.emit(replace(event, site=place(depth + 1)))
        except Exception:
            self.fail()

    def gathered(self, gather: Callable[[], E], otherwise: E) -> E:
        """What ``gather`` returns; ``otherwise`` if it raises. For hooks that replace the user's call."""
        try:
            return gather()
        except Exception:
            self.fail()
            return otherwise

    def span(self, event: A) -> Span[A]:
        return Span(self, event)


def full_name(owner: Any, name: str) -> str:
    """``torch.utils.data.dataloader.DataLoader.__iter__``, of the class and the name."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}.{name}"
    return f"{owner.__module__}.{owner.__qualname__}.{name}"


def say_failed(box: BlackBox, what: str, event: type[HooksDetached | DoorDetached] = HooksDetached) -> None:
    """Record and print the current exception of ddpnb itself. Never raises.

    The traceback is recorded, not printed: it would look like a failure of the script. What broke the hook (a script may
    have replaced ``len``) can break each part of this too.

    Args:
        box: records the event.
        what: what failed, for the message.
        event: its kind.
    """
    trace = type(sys.exc_info()[1]).__name__
    with contextlib.suppress(Exception):
        trace = traceback.format_exc(limit=4)
    with contextlib.suppress(Exception):
        box.emit(event(error=trace[-2000:]))
    with contextlib.suppress(Exception):
        error = sentence(sys.exc_info()[1] or Exception())
        print(f"ddpnb: {what} failed and was disabled on this rank; the run continues: {error}", file=sys.stderr)


# By wrapper: whether its hooks are still wanted, what it stands for, whether the owner had that itself.
_OF_HOOKS: weakref.WeakKeyDictionary[Any, tuple[list[bool], Any, bool]] = weakref.WeakKeyDictionary()


# By module and name: the module, and what has stood there since the names of other modules were last looked at.
_IN_MODULES: dict[tuple[int, str], tuple[ModuleType, list[Any]]] = {}


def put_in_place(*sets: Hooks) -> None:
    """Put these sets of hooks in place, also in the modules that have imported the functions by name."""
    for hooks in sets:
        hooks.put()
    _hide_own_code()
    _rebind()


def _rebind() -> None:
    """Let the names by which modules have imported a function of a module hold what stands there now."""
    stands: dict[int, Any] = {}
    names: set[str] = set()
    former: list[Any] = []  # they must be alive
    for (_, name), (owner, stood) in _IN_MODULES.items():
        now = getattr(owner, name, None)
        others = {id(one): now for one in stood if one is not now}
        stands |= others
        names |= {name} if others else set()
        former += stood
        stood[:] = [now]
    if stands:
        rebind(stands, names)


def _take_away(owner: Any, name: str, hook: Any) -> None:
    """Restore the original of ``hook``, unless another wrapper is above it."""
    if getattr(owner, name, None) is not hook:
        return
    below, own = hook, True
    while below in _OF_HOOKS and (below is hook or not _OF_HOOKS[below][0]):
        _, below, own = _OF_HOOKS[below]
    if own:
        _set(owner, name, below)
    else:
        delattr(owner, name)


def _set(owner: Any, name: str, function: Any) -> None:
    """Put a function in the place of another one; a static method stays one."""
    static = isinstance(owner, type) and isinstance(vars(owner).get(name), staticmethod)
    setattr(owner, name, staticmethod(function) if static else function)


def hide(function: Any, *, below: bool = False) -> Any:
    """Exclude this function and what it calls from torch.compile, which would warn that it cannot trace it.

    Where the compiler inlines it all the same, ``is_compiling()`` is true.
    """
    with contextlib.suppress(AttributeError, TypeError):  # another torch
        frames: Any = torch._C._dynamo.eval_frame  # pyright: ignore[reportAttributeAccessIssue]
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        code = getattr(function, "__func__", function).__code__
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip if below else default))
    return function


def _hide_own_code() -> None:
    """Exclude what the hooks call from torch.compile too: it looks at every function that runs where it is on."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(("ddpnb.recorder.", "ddpnb.recording.")) or name in _HIDDEN:
            continue
        _HIDDEN.add(name)
        for owner in (module, *(kind for kind in vars(module).values() if isinstance(kind, type))):
            for function in vars(owner).values():
                # Not the code of a decorator, which others share.
                if type(function) is FunctionType and function.__code__.co_filename == module.__file__:
                    hide(function, below=True)


def step_over(wrapper: Any) -> None:
    """Make warnings of torch name the caller of the wrapped function, as without the hook, and match filters by module.

    CPython skips frames of its import system, recognised by file name, when it counts stack levels of a warning.
    """
    wrapper.__code__ = wrapper.__code__.replace(co_filename=STEPPED_OVER)


def place(depth: int = 1) -> Site:
    """The user's line that led here."""
    frame = calling_frame(depth + 1)
    return NO_SITE if frame is None else Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class Span(Generic[A]):
    """One event from begin to end. A failure to record must not prevent the user's call."""

    def __init__(self, hooks: Hooks, event: A) -> None:
        self._hooks, self._event = hooks, event
        self._number = -1
        self.learned: A | None = None  # what is known of it only at its end

    def __enter__(self) -> Span[A]:
        try:
            self._number = self._hooks.box.begin(replace(self._event, site=place(2)))
        except Exception:
            self._hooks.fail()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._number < 0:
            return
        try:
            learned: Event | None = self.learned
            if error is not None:
                learned = type(self._event)(error=sentence(error))
            self._hooks.box.end(self._number, learned, failed=error is not None)
        except Exception:
            self._hooks.fail()
