"""Which lines of a file hold code that can run: blank lines, comments and most parts of a statement do not."""

from __future__ import annotations

import warnings
from functools import lru_cache
from types import CodeType


@lru_cache(maxsize=64)
def code_lines(source: str) -> frozenset[int] | None:
    """The lines of which Python reports that they run, by this version's compiler; None if it does not compile."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the user's code are not for this log
            waiting = [compile(source, "<source>", "exec", dont_inherit=True, optimize=0)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    numbers: set[int] = set()
    while waiting:
        code = waiting.pop()
        numbers.update(line for _, _, line in code.co_lines() if line)
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(numbers)
