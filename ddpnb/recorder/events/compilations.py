"""What torch.compile compiles on this rank, how long, and why again: asked of what torch._dynamo itself counts.

The compiler is never imported here, which takes seconds: a program that compiles has imported it.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import torch

from ddpnb.recorder.events.hooks import Hooks, hide, place
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.stacks.user_frames import is_user_file
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.events.runs import MOST_COMPILATIONS, Compilation, GraphBreak

_FRAMES = 40  # between torch's callback and the function in which torch compiles
_COMPILER = "torch._dynamo.convert_frame"
_BREAKS = 4
_LONGEST = 300  # characters of a reason
_READ = 4000  # of one with much white space
# The counters of the caches of compiled graphs: a hit of the first is one of the second too.
_CACHES = (("aot_autograd", "autograd_cache"), ("inductor", "fxgraph_cache"))


class Compilations(Hooks):
    """Records each compilation, from its beginning to its end."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__(box)
        self._count = 0  # in this run
        self._open = -1  # the event of the current one
        self._before: dict[str, int] = {}  # torch's counters when it began
        self._breaks = 0  # graph breaks when it began
        self._places: dict[
            str, tuple[Site, str]
        ] = {}  # of the functions, by torch's number: a backward is compiled later
        hide(self._starts, below=True)
        hide(self._ends, below=True)

    def install(self) -> None:
        self.after(torch, "compile", lambda *_, **__: self._register())  # it imports the compiler
        self._register()

    def new_run(self) -> None:
        super().new_run()
        self._count = 0
        self._register()  # ``torch._dynamo.reset`` removes all callbacks

    def _register(self) -> None:
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if handler is not None and self._starts not in handler.start_callbacks:
            handler.start_callbacks.append(self._starts)
            handler.end_callbacks.append(self._ends)
            self.on_removal(lambda: self._leave(handler))

    def _leave(self, handler: Any) -> None:
        # Other lists: the handler may be calling those that are in the old ones.
        handler.start_callbacks = [one for one in handler.start_callbacks if one != self._starts]
        handler.end_callbacks = [one for one in handler.end_callbacks if one != self._ends]

    def _starts(self, about: Any = None) -> None:
        try:
            if self.box.silent or self._count >= MOST_COMPILATIONS:
                return
            self._count += 1
            number, part = str(getattr(about, "compile_id", "")), _part(about)
            code, reason = (None, "") if part else _compiled(sys._getframe(1))
            if code is not None:
                own = is_user_file(code.co_filename)
                known = Site(code.co_filename, code.co_firstlineno, code.co_name) if own else place(1)
                self._places[number] = known, "" if own else code.co_name
            site, library = self._places.get(number, (NO_SITE, ""))
            self._before, self._breaks = _counters(), len(_graph_breaks())
            self._open = self.box.begin(
                Compilation(compile_id=number, library=library, part=part, reason=reason, site=site)
            )
        except Exception:
            self.fail()

    def _ends(self, _: Any = None) -> None:
        try:
            number, self._open = self._open, -1
            if number < 0:
                return
            now, before = _counters(), self._before
            made = {name: count - before.get(name, 0) for name, count in now.items()}
            error = sys.exc_info()[1]  # a compilation that is given up ends by one, and the function runs as it is
            self.box.end(
                number,
                Compilation(
                    hits=made.get("hits", 0),
                    misses=made.get("misses", 0),
                    breaks=_broken(self._breaks),
                    given_up="" if error is None else _short(f"{type(error).__name__}: {error}"),
                ),
            )
        except Exception:
            self.fail()


def _part(about: Any) -> str:
    """What is compiled besides a function: its backward, kernels, a CUDA graph."""
    name = str(getattr(getattr(about, "callback_trigger", None), "name", "DYNAMO"))
    return "" if name == "DYNAMO" else name.lower().replace("_", " ")


def _compiled(frame: FrameType | None) -> tuple[CodeType | None, str]:
    """The code that the compiler compiles in a frame around this one, and the guard because of which it does so again."""
    code: Any = None
    for _ in range(_FRAMES):
        if frame is None:
            break
        if frame.f_globals.get("__name__") == _COMPILER:
            names = frame.f_locals
            code = names.get("code") if code is None else code
            if "recompile_reason" in names:
                return code if isinstance(code, CodeType) else None, _line(str(names["recompile_reason"] or ""))
        frame = frame.f_back
    return code if isinstance(code, CodeType) else None, ""


def _line(text: str) -> str:
    """The first line, which says what it is; the rest explains."""
    return _short(text.strip().partition("\n")[0])


def _short(text: str) -> str:
    return " ".join(text[:_READ].split())[:_LONGEST]


def _utils() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def _counters() -> dict[str, int]:
    counters, found = getattr(_utils(), "counters", {}), dict[str, int]()
    for owner, cache in _CACHES:
        of = counters.get(owner, {})
        for kind, name in (("hits", "hit"), ("misses", "miss")):
            found[kind] = found.get(kind, 0) + of.get(f"{cache}_{name}", 0)
    return found


def _graph_breaks() -> list[Any]:
    return getattr(_utils(), "graph_break_reasons", [])


def _broken(before: int) -> tuple[GraphBreak, ...]:
    """The lines of the user's at which the graph broke since there were so many breaks."""
    breaks = _graph_breaks()
    found: dict[GraphBreak, None] = {}
    for one in breaks[before if before <= len(breaks) else 0 :]:
        stack = list(getattr(one, "user_stack", ()) or ())
        if stack:
            why = _line(str(getattr(one, "reason", "")))
            found[GraphBreak(file=str(stack[-1].filename), line=int(stack[-1].lineno or 0), why=why)] = None
    return tuple(found)[:_BREAKS]
