"""Watching functions of torch while they are called: what all of our hooks outside of the door share.

A wrapper forwards arguments, results and exceptions untouched. When something of ours fails, the
whole set of hooks takes itself away and says so once: the training goes on as if it had never been.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from ddpnb.engine.blackbox import BlackBox
from ddpnb.engine.sites import calling_frame

_ALIKE = 4  # how often the same event is recorded: what happens in every step must not fill the box


class Hooks:
    """A set of hooks that stand or fall together; sub-classes install theirs in ``install``."""

    def __init__(self, box: BlackBox) -> None:
        self.box = box
        self._undo: list[Callable[[], None]] = []
        self._seen: Counter[str] = Counter()

    def install(self) -> None:
        """Put the hooks in place."""
        raise NotImplementedError

    def remove(self) -> None:
        """Put the originals back."""
        while self._undo:
            self._undo.pop()()

    def new_run(self) -> None:
        """Forget what was seen in the run before."""
        self._seen.clear()

    def on_removal(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)

    def replace(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put ``make(original)`` in the place of ``owner.name``; nothing is done where there is no such name."""
        original = getattr(owner, name, None)
        if original is None:
            return
        setattr(owner, name, functools.wraps(original)(make(original)))
        self._undo.append(lambda: setattr(owner, name, original))

    def before(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        """Call ``look`` with the arguments of every call of ``owner.name``, before it."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            guarded = self.guarded(look)

            def watched(*args: Any, **kwargs: Any) -> Any:
                guarded(*args, **kwargs)
                return original(*args, **kwargs)

            return watched

        self.replace(owner, name, make)

    def after(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        """Call ``look`` with the result and the arguments of every call of ``owner.name`` that returned."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            guarded = self.guarded(look)

            def watched(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                guarded(result, *args, **kwargs)
                return result

            return watched

        self.replace(owner, name, make)

    def guarded(self, look: Callable[..., None]) -> Callable[..., None]:
        """``look``, which may fail without anybody being the worse for it."""
        silent = self.box.silent

        def guarded(*args: Any, **kwargs: Any) -> None:
            if silent:
                return
            try:
                look(*args, **kwargs)
            except Exception:
                self.fail()

        return guarded

    def fail(self) -> None:
        """Something of ours failed: take the hooks away and say so, once."""
        self.remove()
        told = traceback.format_exc(limit=4)
        self.box.event("hooks detached", {"error": told[-2000:]})
        print(
            f"ddpnb: a hook failed and has been taken away; the run goes on without it on this rank.\n{told}",
            file=sys.stderr,
        )

    def event(self, name: str, facts: dict[str, Any] | None = None, *, depth: int = 2) -> None:
        """Record something that happened, with the user's line; the same thing a few times at most."""
        told = {**(facts or {}), **place(depth + 1)}
        key = f"{name} {told}"
        if len(self._seen) < 10_000:
            self._seen[key] += 1
            if self._seen[key] <= _ALIKE:
                self.box.event(name, told)

    def span(self, name: str, facts: dict[str, Any]) -> Span:
        return Span(self, name, facts)


def place(depth: int = 1) -> dict[str, Any]:
    """The user's line that led here, as facts."""
    frame = calling_frame(depth + 1)
    if frame is None:
        return {}
    code = frame.f_code
    return {"file": code.co_filename, "line": frame.f_lineno, "function": code.co_name}


class Span:
    """One phase from begin to end. Failing to record must not keep the user's call from being made."""

    def __init__(self, hooks: Hooks, name: str, facts: dict[str, Any]) -> None:
        self._hooks, self._name, self._facts = hooks, name, facts
        self._number = -1
        self.learned: dict[str, Any] = {}

    def __enter__(self) -> Span:
        try:
            self._number = self._hooks.box.begin_phase(self._name, {**self._facts, **place(2)})
        except Exception:
            self._hooks.fail()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._number < 0:
            return
        try:
            if error is not None:
                self.learned["error"] = f"{type(error).__name__}: {error}"[:500]
            self._hooks.box.end_phase(self._number, error is not None, self.learned)
        except Exception:
            self._hooks.fail()
