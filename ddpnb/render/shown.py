"""The base of what shows itself: as text, and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ddpnb.render import as_html, as_text, markup
from ddpnb.render.document import Block


class Shown:
    """An object with a document. ``_label``: its name for screen readers."""

    __slots__ = ()
    _label: ClassVar[str]

    def _document(self) -> Sequence[Block]:
        raise NotImplementedError

    def __str__(self) -> str:
        return as_text.text(*self._document())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return markup.standalone(as_html.html(*self._document()), self._label)
