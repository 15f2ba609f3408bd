"""The base class of panels: a column of widgets, and its content as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ipywidgets


class Panel:
    """A column of widgets.

    ``box`` is the ipywidgets container.
    """

    def __init__(self, parts: Sequence[ipywidgets.Widget]) -> None:
        self.box = ipywidgets.VBox(tuple(parts))
        self.box.add_class("ddpnb-panel")  # within which keys act: static/keys.js

    @property
    def text(self) -> str:
        """The content as plain text."""
        return "\n\n".join(_texts(self.box))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle: Any = self.box._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**(data or {}), "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


def _texts(box: ipywidgets.Box) -> Iterator[str]:
    for one in box.children:
        if isinstance(one, ipywidgets.Box):
            yield from _texts(one)
        elif text := getattr(one, "text", ""):
            yield text
