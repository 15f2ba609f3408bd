"""The navigation beside each page, which has the titles of pages alone.

Sphinx copies all headings of all pages for each page, then drops those that are not titles: with hundreds of pages that takes
minutes. Here they are dropped once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def connect(app: Sphinx) -> None:
    """Make the navigation of titles, before the theme asks for it."""
    titles: dict[str, nodes.bullet_list] = {}

    def limit(app: Sphinx, _name: str, _template: str, context: dict[str, Any], _tree: object) -> None:
        if not titles:
            titles.update({name: _titles(toc) for name, toc in app.env.tocs.items()})
        if "toctree" in context:
            context["toctree"] = _with_titles(app, titles, context["toctree"])

    app.connect("html-page-context", limit, priority=100)  # the theme's is 500


def _with_titles(app: Sphinx, titles: dict[str, nodes.bullet_list], toctree: Callable[..., str]) -> Callable[..., str]:
    def navigation(**options: Any) -> str:
        if not options.get("titles_only"):
            return toctree(**options)
        whole, app.env.tocs = app.env.tocs, titles
        try:
            return toctree(**options)
        finally:
            app.env.tocs = whole

    return navigation


def _titles(toc: nodes.bullet_list) -> nodes.bullet_list:
    """The title of a page, and the pages below it."""
    short = toc.deepcopy()
    for entry in short:
        if len(entry) > 1:
            below = list(entry[1].findall(addnodes.toctree))
            entry[1][:] = below
            if not below:
                entry.pop(1)
    return short
