"""What all widgets are: traits in, messages out; a plain text for whoever shows no widgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ddpnb.render import palette

STATIC = Path(__file__).parent / "static"
_LONGEST = 4000  # characters of a value that the page sends; what comes from there is not trusted either
_MOST = 200  # values of a message

Action = Callable[[str, dict[str, str]], None]


def styles() -> str:
    """The style sheet of all widgets: the colours of the palette, and the rules."""
    return palette.css() + (STATIC / "style.css").read_text(encoding="utf-8")


def module(*names: str) -> str:
    """The script of a widget: its own file, after those of which it is made.

    A widget's script is one module without a path, so it can import nothing that lies beside it: the
    files are laid one after the other, and their imports of one another are left out.
    """
    texts = [(STATIC / name).read_text(encoding="utf-8").splitlines() for name in names]
    return "\n".join(line for text in texts for line in text if not line.startswith("import "))


class View(anywidget.AnyWidget):
    """A widget. What it shows is in its traits; what somebody does with it goes to ``on_action``.

    Args:
        on_action: called with the name of the action and its values, as texts. It must start work and return.
    """

    live = traitlets.Bool(False, help="something feeds it: when that stops, it says so").tag(sync=True)

    def __init__(self, on_action: Action | None = None, **traits: Any) -> None:
        unknown = set(traits) - set(self.trait_names())
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}.")
        super().__init__(**traits)
        self.on_action = on_action
        self.on_msg(self._take)
        _hear_beside_cells(self.comm)

    @property
    def text(self) -> str:
        """What it shows, in words."""
        return ""

    def beat(self) -> None:
        """Tell the page that whoever feeds this widget still does."""
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
    """Let what the page says be heard in the thread that the page has chosen.

    JupyterLab sends what widgets say to a subshell, so that it is heard while a cell runs. ipykernel
    (7.4) sends it on to whatever has spoken to the page last, and that is the thread that runs the cell.
    A private name of ipykernel: a contract test tells when it has moved.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = None
