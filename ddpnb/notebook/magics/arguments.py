"""Parse the arguments of magics. A usage error says what to write instead."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from IPython.core import error as ipython

from ddpnb.errors import UsageError
from ddpnb.recording.holds import HOW, is_place

_OPTIONS = ("ranks", "keep")


def parse(magic: Callable[..., Any], line: str) -> argparse.Namespace:
    """The arguments of a magic that has a parser, split as a shell does: ``--when "step == 5"`` is one value.

    Raises:
        UsageError: invalid arguments.
    """
    name = ("%%" if "cell" in inspect.signature(magic).parameters else "%") + magic.__name__
    help_ = f"{name}? shows what it takes."
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{name}: {str(error).lower()}.", help_) from None
    try:
        return magic.parser.parse_args(words)  # type: ignore[attr-defined]
    except ipython.UsageError as error:
        raise UsageError(f"{name}: {error}.", help_) from None


def ranks(text: str) -> list[int]:
    """``0,2`` or ``0-3`` or both: whole numbers, in the order given."""
    found: list[int] = []
    for part in re.split(r"\s*,\s*|\s+", text.strip().strip("[]()")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of ranks: write 0,2 or 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + 100_000:
            raise argparse.ArgumentTypeError(f"{part!r} is not a range of ranks: write the lower one first")
        found += range(first, last + 1)
    return found


def variable(text: str) -> str:
    """A valid variable name."""
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid variable name")
    return text


def frame_and_variable(line: str) -> tuple[int, str]:
    """``1 batch['image']``: the number of a frame and a variable to open, both as they are written; 0 and "" if left out.

    Raises:
        UsageError: it is something else.
    """
    match = re.fullmatch(r"\s*(\d{1,4})?(?:\s+|\b|^)([^\W\d].*?)?\s*", line)
    if match is None:
        raise UsageError(f"%ddp_diff: {line.strip()!r} is not a variable.", "%ddp_diff? shows what it takes.")
    return int(match[1] or 0), match[2] or ""


def place_and_calls(words: Sequence[str]) -> tuple[str, list[str]]:
    """``train.py:40`` or ``train_step()`` among operations, and the others.

    Raises:
        UsageError: there are several places.
    """
    places = [word for word in words if is_place(word)]
    if len(places) > 1:
        raise UsageError(f"give only one place, not {' and '.join(places)}.", "Use one hold for each.")
    return next(iter(places), ""), [word for word in words if word not in places]


def step(words: Sequence[str]) -> dict[str, Any]:
    """``over``, ``3 over``, ``train.py:44`` or ``2``: how many steps, how, or to which line.

    Raises:
        UsageError: it is something else.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, value = (
            ("n", int(word))
            if re.fullmatch(r"\d{1,9}", word)
            else ("to", word)
            if is_place(word)
            else ("how", word)
            if word in HOW
            else ("", word)
        )
        if not key or key in found or {"how", "to"} <= {key, *found}:
            raise UsageError(
                f"%ddp_step: {' '.join(words)!r} is not a step.",
                f"Write how many, and one of {', '.join(HOW)} or a line: %ddp_step 2 over, %ddp_step train.py:44.",
            )
        found[key] = value
    return found


def call(words: Sequence[str]) -> tuple[list[str], int | None]:
    """``all_reduce #5``, as in findings: the operations, and the sequence number if given."""
    numbers = [word for word in words if re.fullmatch(r"#\d+", word)]
    if len(numbers) > 1:
        raise UsageError(f"give only one sequence number, not {' and '.join(numbers)}.", "Use one hold for each.")
    names = [name for word in words if word not in numbers for name in word.split(",") if name]
    return names, int(numbers[0][1:]) if numbers else None


def fault(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """``other shape seq=3``: the kind of fault, and its conditions and parameters.

    Raises:
        UsageError: the kind is missing, or a word follows the values.
    """
    kind = [word for word in words if "=" not in word]
    values = [word for word in words if "=" in word]
    if not kind or [*kind, *values] != list(words):
        raise UsageError(
            f"%ddp_inject: {' '.join(words)!r} is not a fault.",
            "Write the kind, then its values: %ddp_inject delay seconds=3",
        )
    return " ".join(kind), given(values)


def given(words: Iterable[str]) -> dict[str, Any]:
    """``name=value``: a Python literal, else a string.

    Raises:
        UsageError: a name is not valid, or is that of an option.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name in _OPTIONS:
            raise UsageError(f"{name} is an option.", f"Write --{name}{' ' + value if name == 'ranks' else ''}.")
        if not name.isidentifier() or name == "fault":
            raise UsageError(f"{word!r} has no value.", "Write name=value, as in seq=3.")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            found[name] = value
    return found
