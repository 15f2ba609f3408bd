"""The base class of widgets: traits in, messages out, and plain text where widgets cannot be shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import anywidget
import traitlets

from ddpnb.render import markup

STATIC = Path(__file__).parent / "static"
VIEWER = "../../../labextension/modules/viewer.js"  # which the extension of JupyterLab shows below outputs, too
_LONGEST = 4000  # characters of a value that the page sends; what comes from there is not trusted either
_MOST = 200  # values of a message

Action = Callable[[str, dict[str, str]], None]


def styles() -> str:
    """The style sheet of all widgets: that of all outputs, and the rules of widgets."""
    return markup.style() + (STATIC / "style.css").read_text(encoding="utf-8")


def module(*names: str) -> str:
    """The script of a widget: its file, preceded by the files that it imports.

    A widget's script is one module without a path, so it cannot import other files: the files are
    concatenated, and their imports of each other removed.
    """
    texts = [(STATIC / name).read_text(encoding="utf-8").splitlines() for name in names]
    return "\n".join(line for text in texts for line in text if not line.startswith("import "))


class View(anywidget.AnyWidget):
    """A widget. Its traits hold the content; actions of the user go to ``on_action``.

    Args:
        on_action: called with the name of the action and its values, as strings. It must return quickly.
    """

    own = traitlets.Unicode("", help="the id of its model, by which the page finds it").tag(sync=True)
    live = traitlets.Bool(False, help="something feeds it: when that stops, it says so").tag(sync=True)

    def __init__(self, on_action: Action | None = None, **traits: Any) -> None:
        unknown = set(traits) - set(self.trait_names())
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}.")
        own = uuid4().hex
        super().__init__(model_id=own, own=own, **traits)
        self.on_action = on_action
        self.on_msg(self._take)
        _hear_beside_cells(self.comm)

    @property
    def text(self) -> str:
        """The content as plain text."""
        return ""

    def beat(self) -> None:
        """Tell the page that this widget is still updated."""
        self.send({"kind": "beat"})

    def _take(self, _widget: object, content: Any, _buffers: object) -> None:
        if not isinstance(content, Mapping) or self.on_action is None:
            return
        values = content.get("values")
        told = islice(values.items(), _MOST) if isinstance(values, Mapping) else ()
        given = {str(name)[:100]: str(value)[:_LONGEST] for name, value in told}
        self.on_action(str(content.get("action", ""))[:100], given)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is not None:
            bundle[0]["text/plain"] = self.text
        return bundle

    def __repr__(self) -> str:
        return self.text


def _hear_beside_cells(comm: Any) -> None:
    """Handle messages of the page in the thread that the page has chosen.

    JupyterLab sends messages of widgets to a subshell, so that they are handled while a cell runs. ipykernel
    (7.4) forwards them to the thread that last sent to the page, which is the one that runs the cell.
    Uses a private name of ipykernel; a contract test checks it.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = None
