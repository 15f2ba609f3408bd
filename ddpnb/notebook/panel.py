"""The base class of panels: a column of widgets, its content as text, and its last state for notebooks without a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ipywidgets

from ddpnb.notebook.kept import Kept
from ddpnb.render import still


class Panel:
    """A column of widgets.

    ``box`` is the ipywidgets container.
    """

    def __init__(self, parts: Sequence[ipywidgets.Widget]) -> None:
        self.kept = Kept(self.state)
        self.box = ipywidgets.VBox(tuple(parts))
        self.box.add_class("ddpnb-panel")  # within which keys act: static/keys.js
        self.box.add_class(f"{still.PANEL}-{self.kept.number}")

    @property
    def ended(self) -> bool:
        """Whether it is not updated any more, though it shows live ranks."""
        return False

    def state(self) -> tuple[str, str]:
        """What the panel shows now, as static HTML and as plain text."""
        text = self.text
        title, _, rest = text.partition("\n")
        return still.state(title, text=rest), text

    @property
    def text(self) -> str:
        """The content as plain text."""
        return "\n\n".join(_texts(self.box))

    def _ipython_display_(self) -> None:
        if not self.kept.show(self._repr_mimebundle_()):
            raise NotImplementedError  # then IPython asks for the bundle

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
