"""The options that a script declares with argparse or click, read from its text."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ddpnb.recording.source.expressions import last_name
from ddpnb.recording.source.names import Names

_LARGEST = 2_000_000  # bytes of a file that is read
_MOST_FILES = 32
_DECLARING = {"add_argument", "option"}  # argparse, click
_WITHOUT_VALUE = {"store_true", "store_false", "store_const", "append_const", "count", "help", "version"}
_UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class Option:
    """An option as a script declares it.

    ``names``: as they can be typed. ``flag``: it takes no value. ``several``: it takes more than one at once. ``default``: the
    value without it, as it would be typed; None: there is none, or it cannot be read. ``required``: it cannot be left out.
    ``choices``: the values that it takes, where they are listed. ``line``: where it is declared.
    """

    names: tuple[str, ...]
    flag: bool = False
    several: bool = False
    default: str | None = None
    required: bool = False
    choices: tuple[str, ...] = ()
    file: str = ""
    line: int = 0


def declared(path: str) -> tuple[Option, ...]:
    """The options that a script, and the modules beside it that it imports, declare.

    Nothing is run. What is not written as a constant, such as a default that is computed, is not known.

    Args:
        path: of the script. One that cannot be read declares none.

    Example:
        >>> [option.names for option in declared("train.py")]
        [('--steps',), ('--fixed',)]
    """
    options: dict[str, Option] = {}
    waiting, seen = [path], set[str]()
    while waiting and len(seen) < _MOST_FILES:
        file = waiting.pop(0)
        if file in seen:
            continue
        seen.add(file)
        tree = _parsed(file)
        if tree is None:
            continue
        for option in options_of(tree, file):
            options.setdefault(option.names[-1], option)
        waiting += _imported(tree, os.path.dirname(os.path.abspath(file)))
    return tuple(options.values())


def options_of(tree: ast.AST, file: str = "") -> Iterator[Option]:
    """The options that a parsed text declares."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in _DECLARING:
            names = tuple(name for value in node.args for name in _spellings(value))
            if names:
                yield _option(names, node, file)


def _option(names: tuple[str, ...], call: ast.Call, file: str) -> Option:
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    constants = {name: _constant(value) for name, value in given.items()}
    action = constants.get("action")
    both = last_name(given.get("action")) == "BooleanOptionalAction" or any("/" in name for name in names)
    flag = action in _WITHOUT_VALUE or both or constants.get("is_flag") is True or constants.get("count") is True
    if both:
        names = tuple(part for name in names for part in _both_ways(name))
    nargs = constants.get("nargs")
    default = constants.get("default")
    return Option(
        names,
        flag=flag,
        several=nargs in ("+", "*") or (isinstance(nargs, int) and nargs > 1),
        default=str(default) if isinstance(default, (str, int, float)) else None,
        required=constants.get("required") is True,
        choices=_choices(given.get("choices") or given.get("type")),
        file=file,
        line=call.lineno,
    )


def _both_ways(name: str) -> tuple[str, ...]:
    """``--amp/--no-amp`` of click, and what BooleanOptionalAction adds."""
    if "/" in name:
        return tuple(part.strip() for part in name.split("/") if part.strip())
    return (name, f"--no-{name[2:]}") if name.startswith("--") else (name,)


def _spellings(value: ast.expr) -> Iterator[str]:
    constant = _constant(value)
    if isinstance(constant, str) and constant.startswith("-") and constant.strip("-"):
        yield constant


def _constant(value: ast.expr | None) -> object:
    with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.literal_eval(value) if value is not None else _UNKNOWN
    return _UNKNOWN


def _choices(value: ast.expr | None) -> tuple[str, ...]:
    if isinstance(value, ast.Call) and last_name(value.func) == "Choice" and value.args:
        value = value.args[0]
    listed = _constant(value)
    return tuple(str(one) for one in listed) if isinstance(listed, (list, tuple)) else ()  # type: ignore[reportUnknownVariableType]


def _parsed(path: str) -> ast.Module | None:
    with suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if os.path.getsize(path) <= _LARGEST:
            with open(path, "rb") as file:
                return ast.parse(file.read())
    return None


def _imported(tree: ast.Module, folder: str) -> list[str]:
    """The files beside a script that it imports."""
    names = [name for _, module, taken in Names(tree).imports if module for name in (module, f"{module}.{taken}")]
    paths = [os.path.join(folder, *name.split(".")) for name in names]
    candidates = [one for path in paths for one in (f"{path}.py", os.path.join(path, "__init__.py"))]
    return [one for one in dict.fromkeys(candidates) if os.path.isfile(one)]
