"""Asks the page for a panel beside the notebook, and says in the cell where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from ddpnb.notebook.widgets.view import View, module, styles


class Dock(View):
    """A line that says where a panel is. The page opens it once, and again by its button.

    Args:
        on_here: called where the page has no such panels: the content then belongs in the cell.
    """

    _esm = module("dock.js")
    _css = styles()
    where = traitlets.Unicode("right").tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)
    panel = traitlets.Unicode("", help="one panel for each name").tag(sync=True)
    child = traitlets.Unicode("", help="the id of the model that it shows").tag(sync=True)
    number = traitlets.Int(0, help="of this request").tag(sync=True)

    def __init__(self, on_here: Callable[[], None], **traits: Any) -> None:
        super().__init__(self._asked, **traits)
        self._on_here = on_here

    @property
    def text(self) -> str:
        return f"{self.title}: {self.where}"

    def _asked(self, action: str, values: Mapping[str, str]) -> None:
        del values
        if action == "here":
            self._on_here()
