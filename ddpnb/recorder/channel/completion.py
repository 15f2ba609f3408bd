"""The names that Tab completes: variables of the cells of a rank, and the attributes of one of them.

They are read from dictionaries alone. ``dir()`` and ``getattr()`` could run code of the user, here in the thread of the
control channel, while the rank trains.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

_MOST = 500
_LONGEST = 100  # characters of a name
_OF_MODULES = ("_parameters", "_buffers", "_modules")  # in which torch keeps attributes of a module
_MISSING = object()


def completions(namespace: dict[str, Any], owner: str, prefix: str) -> list[str]:
    """Names that begin with ``prefix``: variables, or attributes of the variable ``owner``; at most 500, sorted.

    Names that begin with an underscore are listed only where the prefix does.

    Example:
        >>> completions({"model": 1, "loader": 2}, "", "mo")
        ['model']
    """
    found = list(namespace)
    if owner:
        value = namespace.get(owner, _MISSING)
        found = [] if value is _MISSING else _attributes(value)
    shown = {
        name
        for name in found
        if type(name) is str
        and name.startswith(prefix)
        and (prefix.startswith("_") or not name.startswith("_"))
        and name.isidentifier()
        and len(name) <= _LONGEST
    }
    return sorted(shown)[:_MOST]


def _attributes(value: Any) -> Iterable[Any]:
    try:
        own = object.__getattribute__(value, "__dict__")
    except Exception:  # slots, or a type written in C
        own = {}
    names = list(own) if isinstance(own, dict) else []
    if issubclass(type(value), ModuleType):  # isinstance() asks the value too
        return names
    for kept in _OF_MODULES:
        part = own.get(kept) if isinstance(own, dict) else None
        names += list(part) if type(part) is dict else []
    types = type.__getattribute__(value, "__mro__") if issubclass(type(value), type) else type(value).__mro__
    for one in types:
        names += list(type.__getattribute__(one, "__dict__"))
    return names
