"""What the ranks are told to run: a script, a function, or a cell."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from ddpnb.errors import ScriptNotFound, UsageError


def of_script(path: str | os.PathLike[str], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """The order to run a script.

    Raises:
        ScriptNotFound: there is none that could be run.
    """
    check_script(path)
    return {"script": os.fspath(path), "arguments": [str(argument) for argument in arguments]}


def of_function(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[dict[str, Any], bytes]:
    """The order to call a function, and what is to be sent with it.

    Raises:
        UsageError: it is none, or cannot be sent.
    """
    if not callable(function):  # pyright: ignore[reportUnnecessaryComparison]
        raise UsageError(f"run() takes the path of a script or a function, not {type(function).__name__}.")
    import cloudpickle

    try:
        return {"path": list(sys.path)}, cloudpickle.dumps((function, arguments))
    except Exception as error:
        raise UsageError(
            f"{getattr(function, '__name__', function)!r} cannot be sent to the ranks: {error}.",
            "Open files, locks and process groups must be made inside the function.",
        ) from None


def of_cell(code: str, path: str) -> dict[str, Any]:
    """The order to run lines of code, which are kept in ``path`` so that they can be shown and read.

    Raises:
        UsageError: they are no Python.
    """
    try:
        compile(code, "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"this is no Python: {getattr(error, 'msg', None) or error}{line}.") from None
    with open(path, "w", encoding="utf-8") as file:
        file.write(code)
    return {"cell": path}


def check_script(path: str | os.PathLike[str]) -> None:
    """Refuse what cannot be run as a script.

    Raises:
        ScriptNotFound: it does not exist, is a folder, or cannot be read.
    """
    name = os.fspath(path)
    hint = f"It was looked for from {os.getcwd()}."
    if not os.path.isfile(name):
        what = "is a folder" if os.path.isdir(name) else "does not exist"
        raise ScriptNotFound(f"the script {name!r} {what}.", hint)
    if not os.access(name, os.R_OK):
        raise ScriptNotFound(f"the script {name!r} cannot be read.", "Check its permissions.")
