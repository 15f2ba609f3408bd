"""Where a place of a hold is: the file of that name, and whether its line has code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from types import CodeType
from typing import Any

from ddpnb.recorder.stacks.user_frames import frames_of, is_own_file, is_user_file
from ddpnb.recording import verbs
from ddpnb.recording.holds import Place

_MOST, _MOST_MODULES, _DEEPEST = 4 << 20, 20_000, 50  # bytes of a source; modules; functions in functions


def located(text: str) -> verbs.Nearest:
    """The file of a place, and whether its line has code, or its function is there.

    Raises:
        UsageError: it is no place.
    """
    place = Place.read(text)
    file = next(_files(place), "") if place.file else ""
    library = bool(file) and not is_user_file(file)
    if is_own_file(file):
        return verbs.Nearest(file=verbs.LongText(file), has_code=False, library=True)
    code = _compiled(file)
    if code is None:
        return verbs.Nearest(file=verbs.LongText(file), library=library)
    there, near = _looked_up(place, code)
    return verbs.Nearest(file=verbs.LongText(file), has_code=there, near=near, library=library)


def _looked_up(place: Place, code: CodeType) -> tuple[bool, tuple[int, ...]]:
    functions = [*_functions(code, 0)]
    if not place.line:
        return any(place.is_entry_of(one.co_qualname) for one in functions), ()
    lines = {line for one in functions for _, _, line in one.co_lines() if line}
    before = max((line for line in lines if line < place.line), default=None)
    behind = min((line for line in lines if line > place.line), default=None)
    return place.line in lines, tuple(line for line in (before, behind) if line is not None)


def _files(place: Place) -> Iterator[str]:
    """Files to which a place may belong, those of the user first: code that runs, modules, and files below the current folder."""
    found = dict.fromkeys(
        file for file in _loaded() if place.is_of(file) and (place.in_libraries or is_user_file(file))
    )
    yield from sorted(found, key=lambda file: not is_user_file(file))
    here = os.path.join(os.getcwd(), place.file)
    if os.path.isfile(here):
        yield here


def _loaded() -> Iterable[str]:
    for ident in list(sys._current_frames()):
        yield from (frame.f_code.co_filename for frame in frames_of(ident))
    for module in islice(list(sys.modules.values()), _MOST_MODULES):
        names: Any = getattr(module, "__dict__", None)
        file = names.get("__file__") if type(names) is dict else None
        if type(file) is str:
            yield file


def _compiled(file: str) -> CodeType | None:
    """The code of a file; None: its source cannot be read."""
    try:
        with open(file, "rb") as source:
            text = source.read(_MOST + 1)
        return compile(text, file, "exec", dont_inherit=True) if len(text) <= _MOST else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _functions(code: CodeType, depth: int) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts if depth < _DEEPEST else ():
        if isinstance(one, CodeType):
            yield from _functions(one, depth + 1)
