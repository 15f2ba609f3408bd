"""A panel beside the notebook, or in a side panel of JupyterLab; where the page has none, it stays in the cell."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import uuid4

from ddpnb.errors import UsageError
from ddpnb.notebook import PLACES
from ddpnb.notebook.panel import Panel
from ddpnb.notebook.widgets.dock import Dock

_numbers = count(1)
_known: dict[int, tuple[Any, str, Panel]] = {}  # panels of live ranks, by the identity of these


class Docked(Panel):
    """In the cell, says where a panel is.

    ``inner`` is that panel; ``text`` is its content.
    """

    def __init__(self, inner: Panel, where: str, title: str, name: str) -> None:
        self.inner = inner
        self._dock = Dock(
            self._here, where=where, title=title, panel=name, child=inner.box.model_id, number=next(_numbers)
        )
        super().__init__((self._dock,))

    @property
    def text(self) -> str:
        return self.inner.text

    def _here(self) -> None:
        self.box.children = (self._dock, *self.inner.box.children)


def docked(what: Any, where: str, made: Callable[[], Panel], *, live: bool) -> Panel:
    """The panel for ``what`` at this place; live ranks have one, which is shown again.

    Raises:
        UsageError: there is no such place.
    """
    if where not in PLACES:
        raise UsageError(f"where= is one of {', '.join(map(repr, PLACES))}, not {where!r}.")
    if where == "here":
        return made()
    for key, (other, _, _) in list(_known.items()):
        if other.closed and other is not what:
            del _known[key]
    if not live:
        return Docked(made(), where, _title(what), f"ddpnb-{uuid4().hex}")
    known = _known.get(id(what))
    if known is None or known[2].ended:  # the page replaces what it shows under this name
        _known[id(what)] = what, known[1] if known is not None else f"ddpnb-{uuid4().hex}", made()
    _, name, inner = _known[id(what)]
    return Docked(inner, where, _title(what), name)


def _title(what: Any) -> str:
    ranks = getattr(what, "size", None)
    return f"ddpnb: {ranks} ranks" if isinstance(ranks, int) else "ddpnb"
