"""A widget whose HTML Python renders; the browser patches the page in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import traitlets

from ddpnb.notebook.widgets import places
from ddpnb.notebook.widgets.view import VIEWER, Action, View, module, styles
from ddpnb.render import as_html, as_text, markup
from ddpnb.render.document import Block

_MOST_PAGES = 100  # that are remembered
_LONGEST = 4000  # characters of a path


class Fragment(View):
    """HTML that is updated in place: focus, scroll position, open parts and typed text are kept.

    Elements that carry ``data-action`` send that action when they are clicked (a form: when it is sent;
    with ``data-change``: when a field changes), with their ``data-`` values and the fields of their form. With
    ``data-fill`` a click first enters ``data-value`` into the field of that name. Links to the code
    open in JupyterLab at their line, or show the text of the file below the content.

    ``sources`` are the texts of files as the ranks ran them; other files are read from the disk.

    Args:
        html: rendered by ``ddpnb.render``, which escapes all data of ranks. The page drops whatever is not in the
            allow-list of ``static/sanitize.js``.
        text: the content as plain text, or what makes it when it is wanted.
        label: name for screen readers.
        title: a heading above it.
        folds: whether it opens and closes by its title; it is closed until ``unfold()`` or a click opens it,
            which calls ``on_unfolded``.
        on_seen: called when a page begins to show it again; ``unseen`` is then kept up to date.
    """

    _esm = module(
        "connection.js",
        "hearing.js",
        "keys.js",
        "patch.js",
        "sanitize.js",
        VIEWER,
        "places.js",
        "copy.js",
        "filter.js",
        "rank.js",
        "fragment.js",
    )
    _css = styles()
    html = traitlets.Unicode("").tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)
    folds = traitlets.Bool(False).tag(sync=True)
    watched = traitlets.Bool(False, help="pages say whether they show it").tag(sync=True)
    unfolded = traitlets.Int(0, help="how often it was opened or closed from here; below zero: closed last").tag(
        sync=True
    )

    def __init__(
        self,
        html: str = "",
        text: str | Callable[[], str] = "",
        label: str = "",
        on_action: Action | None = None,
        on_unfolded: Callable[[], None] | None = None,
        on_seen: Callable[[], None] | None = None,
        **traits: Any,
    ) -> None:
        super().__init__(on_action, html=html, label=label, watched=on_seen is not None, **traits)
        self.on_unfolded = on_unfolded
        self.on_seen = on_seen
        self.sources: Mapping[str, str] = {}
        self._text = text
        self._pages: set[str] | None = None  # that show it now; None: none ever did

    @property
    def text(self) -> str:
        text = self._text  # another thread may replace it meanwhile
        return text() if callable(text) else text

    @property
    def unseen(self) -> bool:
        """Whether pages have shown it and none does now: they were closed, or lie behind others."""
        return self._pages is not None and not self._pages

    def _take(self, widget: object, content: Any, buffers: object) -> None:
        action = content.get("action") if isinstance(content, Mapping) else None
        if action == "unfolded":
            if self.on_unfolded is not None:
                self.on_unfolded()
        elif action == "seen":
            self._seen(content.get("values"))
        elif action == "place":
            places.go(self, content.get("values"), self.sources, self._names)
        elif action == "written":
            self._give(content.get("values"))
        else:
            super()._take(widget, content, buffers)

    def _seen(self, values: object) -> None:
        if self.on_seen is None or not isinstance(values, Mapping):
            return
        page, pages = str(values.get("page", ""))[:40], self._pages or set()
        if values.get("here"):
            self._pages = {*sorted(pages)[-_MOST_PAGES:], page}
            self.on_seen()
        else:
            self._pages = pages - {page}

    def _names(self, file: str, line: int) -> bool:
        return markup.attributes({"data-file": file, "data-line": str(line)}) in self.html

    def _give(self, values: Any) -> None:
        """Say where the server of the page has a file that was written: only one that is named here."""
        if not isinstance(values, Mapping):
            return
        file, root = (str(values.get(name, ""))[:_LONGEST] for name in ("file", "root"))
        if file and markup.attributes({"data-written": file}) in self.html:
            self.send(places.written(file, root))

    def unfold(self) -> None:
        """Open it, in all views."""
        self.unfolded = abs(self.unfolded) + 1

    def fold(self) -> None:
        """Close it again, in all views, if ``unfold()`` has opened it."""
        self.unfolded = -abs(self.unfolded)

    def show_blocks(self, *blocks: Block) -> None:
        """Replace the content by a document."""
        self.show(as_html.html(*blocks), partial(as_text.text, *blocks))

    def show(self, html: str, text: str | Callable[[], str] = "") -> None:
        """Replace the content."""
        self._text = text
        if html != self.html:
            self.html = html
