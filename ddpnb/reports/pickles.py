"""A restricted reader of pickles: containers, strings, numbers, bytes, booleans and None, and nothing else.

It runs in a process that has limits (``dumps.processes``): a pickle of a few bytes can ask for any amount of memory. It needs
the standard library alone, so that such a process starts quickly.
"""

from __future__ import annotations

import io
import json
import pickle
from typing import Any, NoReturn

_AHEAD = 1 << 20  # bytes


class Refused(ValueError):
    """This file is not read; the text says why, and fits behind its name. ``unsafe``: it asks to execute something."""

    def __init__(self, text: str, *, unsafe: bool = False) -> None:
        super().__init__(text)
        self.unsafe = unsafe


class _Unpickler(pickle.Unpickler):
    """Without a name there is no callable, so that REDUCE, BUILD, OBJ and NEWOBJ have nothing to call.

    Extension codes stand for names of a registry that is empty in the process that reads.
    """

    def find_class(self, module: str, name: str, /) -> NoReturn:
        what = f"{_short(module)}.{_short(name)}"
        raise Refused(f"names {what}: a dump holds plain values. Nothing of it was executed", unsafe=True)

    def persistent_load(self, _pid: Any, /) -> NoReturn:
        raise Refused("refers to objects outside the file: a dump holds plain values", unsafe=True)


def _short(name: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(name)[:80])


def loads(data: bytes) -> Any:
    """The plain values of a pickle or a JSON text.

    Raises:
        Refused: it names anything, it is cut off or damaged, or it needs more memory than this process may have.

    Example:
        >>> loads(pickle.dumps({"version": "2.10"}))
        {'version': '2.10'}
    """
    try:
        if data[:64].lstrip(b" \t\r\n\xef\xbb\xbf")[:1] in (b"{", b"["):
            return json.loads(data.removeprefix(b"\xef\xbb\xbf"))
        # With peek() it reads ahead: five times as fast as from BytesIO alone.
        return _Unpickler(io.BufferedReader(io.BytesIO(data), _AHEAD)).load()
    except Refused:
        raise
    except MemoryError:
        raise Refused("needs more memory than a dump of its size may need") from None
    except Exception as error:
        raise Refused(f"is cut off or damaged, or holds more than plain values ({_short(error)})") from None
