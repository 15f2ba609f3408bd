"""The base class of panels: a column of widgets, and its content as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets


class Panel:
    """A column of widgets.

    ``box`` is the ipywidgets container.
    """

    def __init__(self, parts: Sequence[ipywidgets.Widget]) -> None:
        self.box = ipywidgets.VBox(tuple(parts))

    @property
    def text(self) -> str:
        """The content as plain text."""
        return "\n\n".join(text for one in self.box.children if (text := getattr(one, "text", "")))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle: Any = self.box._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**(data or {}), "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text
