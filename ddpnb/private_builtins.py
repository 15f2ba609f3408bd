"""Python's names as they were when ddpnb was imported, for its modules that run in a rank.

A program may put a function of its own in the place of ``builtins.len`` or ``time.sleep``. Hooks and threads of ddpnb run in
its process, must not call that function, and must not fail by what it returns. A function looks up builtins in the ``__builtins__``
that its module had when it was made: in the modules of ``FOLDERS`` that is a copy, and their ``import time`` gives a copy too.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import time
from functools import partial
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = tuple(os.path.join(_HERE, name) for name in ("recorder", "recording"))


class _Encoder(json.JSONEncoder):
    default, encode, iterencode = json.JSONEncoder.default, json.JSONEncoder.encode, json.JSONEncoder.iterencode


class _Decoder(json.JSONDecoder):
    decode, raw_decode = json.JSONDecoder.decode, json.JSONDecoder.raw_decode


def _copy(module: ModuleType, **other: Any) -> ModuleType:
    copy = ModuleType(module.__name__, module.__doc__)
    copy.__dict__.update(module.__dict__, **other)
    return copy


# Nothing in these modules is ever set again, but by programs; those set methods of the two classes as well.
_JSON = _copy(json, dumps=partial(json.dumps, cls=_Encoder), loads=partial(json.loads, cls=_Decoder))
_MODULES = {"json": _JSON, "time": _copy(time)}


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:  # noqa: A002
    """What ``import`` calls in our modules: the import of the process, which hidden modules replace, but for copies."""
    if level == 0 and name in _MODULES:
        return _MODULES[name]
    return builtins.__import__(name, globals, locals, fromlist, level)


_BUILTINS = {**builtins.__dict__, "__import__": _import}


class _Loader(SourceFileLoader):
    """Runs a module with the copy."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = _BUILTINS
        super().exec_module(module)


def _finder(folder: str) -> FileFinder:
    """A hook of ``sys.path_hooks``, which Python asks once for each folder of a package."""
    if not folder.startswith(FOLDERS):
        raise ImportError
    return FileFinder(folder, (_Loader, SOURCE_SUFFIXES))


def install() -> None:
    """Load the modules of ``FOLDERS`` in this way from now on."""
    sys.path_hooks.insert(0, _finder)
