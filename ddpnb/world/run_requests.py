"""Orders for the ranks: run a script, a function, or a cell."""

from __future__ import annotations

import io
import linecache
import os
import re
import sys
import warnings
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar, NamedTuple

from ddpnb.errors import ScriptNotFound, UsageError, WorldError
from ddpnb.recording import arguments
from ddpnb.recording.files import private, similar, write_private
from ddpnb.recording.protocol import NAMESPACE

FENCES = ("raise", "warn", "off")

_NAME = re.compile(r"cell\d{1,9}|In\[\d{1,9}\]")  # what is shown without the world's folder


class Terms(NamedTuple):
    """How a run is checked, and when it hangs: see ``launch()``."""

    fence: str
    patience: float
    end_after_patience: bool


def check_terms(fence: str, patience: float) -> None:
    """Check the fence and the patience of a run.

    Raises:
        UsageError: unknown fence, or an invalid number of seconds.
    """
    if not isinstance(fence, str) or fence not in FENCES:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"unknown fence {arguments.short(fence)}.", f"Choose one of: {', '.join(FENCES)}.")
    if not isinstance(patience, (int, float)) or isinstance(patience, bool) or not patience > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"patience must be a positive number of seconds, not {arguments.short(patience)}.")


def of_script(path: str | os.PathLike[str], given: tuple[Any, ...], *, elsewhere: bool = False) -> dict[str, Any]:
    """The order to run a script.

    Args:
        path: its path.
        given: its arguments.
        elsewhere: the ranks are on other hosts, which are asked whether they have it.

    Raises:
        ScriptNotFound: the script does not exist or cannot be read.
    """
    if not elsewhere or "\0" in os.fsdecode(path) or os.path.exists(path):
        check_script(path)
    return {"script": os.fsdecode(path), "arguments": [str(argument) for argument in given]}


def of_function(function: Callable[..., Any], given: tuple[Any, ...], folder: str) -> tuple[dict[str, Any], bytes]:
    """The order to call a function, and what is to be sent with it.

    Ranks cannot read the source of notebook cells: it is written to ``folder``, and the ranks use the name
    that the notebook shows (``In[3]``).

    Raises:
        UsageError: not a function, or one that cannot be pickled.
    """
    if not callable(function):  # pyright: ignore[reportUnnecessaryComparison]
        raise UsageError(f"run() takes the path of a script or a function, not {type(function).__name__}.")
    try:
        name = f"function {getattr(function, '__name__', type(function).__name__)}"
        return {"path": list(sys.path), "name": name[:200]}, _pickled((function, given), folder)
    except Exception as error:
        raise UsageError(
            f"{getattr(function, '__name__', function)!r} cannot be sent to the ranks: {error}.",
            "Create open files, locks and process groups inside the function.",
        ) from None


def _pickled(value: Any, folder: str) -> bytes:
    from cloudpickle import CloudPickler

    def reduced(code: CodeType) -> Any:
        cell = _cell_of(code.co_filename, folder)
        return CloudPickler.dispatch_table[CodeType](code.replace(co_filename=cell) if cell else code)

    namespace = {"__name__": "__main__"}  # stands for that of the cells, where functions of the notebook run

    class Pickler(CloudPickler):
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: reduced}, CloudPickler.dispatch_table)  # type: ignore[arg-type]

        def persistent_id(self, obj: Any) -> str | None:
            return NAMESPACE if obj is namespace else None

    file = io.BytesIO()
    pickler = Pickler(file)
    pickler.globals_ref[id(vars(sys.modules["__main__"]))] = namespace
    pickler.dump(value)
    return file.getvalue()


def _cell_of(name: str, folder: str) -> str | None:
    """The file of the notebook's cell whose code goes by this name, if it is one; it is written when it is not there."""
    shown = shown_name(name)
    lines = linecache.getlines(name) if shown is not None else []
    if shown is None or not lines:
        return None
    path = os.path.join(folder, f"{shown}.py")
    with open(path, "a+", encoding="utf-8", opener=private) as file:
        file.seek(0)
        if file.readlines() != lines:  # after a %reset, cells are counted from 1 again
            file.truncate(0)
            file.writelines(lines)
    return path


def shown_name(name: str) -> str | None:
    """What a notebook shows of the cell whose code goes by this file name, such as ``In[3]``; None if it is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    told = shell.compile.format_code_name(name) if shell is not None else None
    return told[1] if told is not None and _NAME.fullmatch(told[1]) else None


def of_cell(code: str, folder: str, name: str) -> dict[str, Any]:
    """The order to run lines of code, which are kept in ``folder`` so that they can be shown and read.

    Raises:
        UsageError: invalid Python syntax, or an invalid name.
        WorldError: no space for the file.
    """
    arguments.text("code", code)
    if not _NAME.fullmatch(arguments.text("name", name)):
        raise UsageError(f"{name!r} is not a valid cell name.", "Use cell and a number, or In and a number: In[3].")
    try:
        compile(code, "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"invalid Python syntax: {getattr(error, 'msg', None) or error}{line}.") from None
    path = os.path.join(folder, f"{name}.py")
    try:
        write_private(path, code)
    except OSError as error:
        raise WorldError(
            f"cannot write the cell to {path}: {error.strerror}.",
            "Free some space there, or launch a new World with TMPDIR set to another folder.",
        ) from None
    return {"cell": path}


def parses(path: str) -> bool:
    """Whether Python can parse a script; True where that is not known."""
    try:
        with open(path, "rb") as file, warnings.catch_warnings(action="ignore"):
            compile(file.read(), path, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    except (OSError, ValueError, RecursionError, MemoryError):
        return True
    return True


def check_script(path: str | os.PathLike[str]) -> None:
    """Refuse what cannot be run as a script.

    Raises:
        ScriptNotFound: it does not exist, is a folder, or cannot be read.
    """
    name = os.fsdecode(path)
    hint = f"The current directory is {os.getcwd()}."
    if "\0" in name:
        raise ScriptNotFound(f"invalid script name {name!r}: it contains a null character.", hint)
    if not os.path.isfile(name):
        if os.path.isdir(name):
            raise ScriptNotFound(f"the script {name!r} is a folder.", hint)
        raise ScriptNotFound(f"the script {name!r} does not exist.", similar(name, hint))
    if not os.access(name, os.R_OK):
        raise ScriptNotFound(f"the script {name!r} cannot be read.", "Check its permissions.")
