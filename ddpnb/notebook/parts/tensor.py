"""A tensor by rank: a form with its name, and its values on each rank."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.errors import DdpnbError, UsageError
from ddpnb.notebook import asked
from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import as_html, tensors
from ddpnb.render.controls import Head, message

_READING = "reading a tensor"


class TensorByRank(Part[Fragment]):
    name = "tensor"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("Tensor by rank", "a tensor by rank")
        self._names: tuple[str, ...] = ()
        self._answer, self._text, self._bad = "", "", False
        self._enabled, self._opened = True, False
        self._reads = False  # as it is shown
        self._show()

    def unfolded(self) -> None:
        self._opened = True
        self.context.tasks.start("listing tensors", self._list, quiet=True)

    def refresh(self, head: Head) -> None:
        if (self._enabled, self._reads) != (head.alive, _READING in head.busy):
            self._enabled = head.alive
            self._show()

    def run_began(self) -> None:
        """An error was of the run before."""
        if self._bad:
            self._answer, self._text, self._bad = "", "", False
            self._show()

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        """The ranks are at another place: other tensors can be chosen."""
        del recording, diagnosis
        if self._opened:
            self.context.tasks.start("listing tensors", self._list, quiet=True)

    def act(self, action: str, values: Mapping[str, str]) -> bool:
        if action != "tensor":
            return False
        self.context.tasks.start(_READING, lambda: self._read(values))
        return True

    def _list(self) -> None:
        try:
            self._names = self.context.world.tensor_names()
        except DdpnbError:  # nobody has asked for it, and the form needs no names
            self._names = ()
        self._show()

    def _read(self, values: Mapping[str, str]) -> None:
        try:
            name = values.get("name", "").strip()
            if not name:
                raise UsageError("no tensor is named.", "Choose one, or enter its name, such as model.fc.weight.")
            found = self.context.world.tensor(name, asked.whole(values, "frame", 0) or 0)
            self._answer, self._text, self._bad = as_html.html(*tensors.document(found)), str(found), False
        except DdpnbError as error:
            self._answer, self._text, self._bad = message(str(error), bad=True), str(error), True

    def _show(self) -> None:
        with self.context.tasks.drawing:
            self._reads = _READING in self.context.tasks.busy
            form = tensors.form(self._names, enabled=self._enabled, reads=self._reads)
            self.widget.show(form + self._answer, self._text)
