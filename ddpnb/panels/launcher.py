"""A form that launches a World, and is then replaced by its dashboard."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping

from ddpnb.errors import DdpnbError
from ddpnb.panels import asked
from ddpnb.panels.dashboard import Dashboard
from ddpnb.panels.panel import Panel
from ddpnb.render import controls
from ddpnb.widgets.fragment import Fragment
from ddpnb.world import World, launch

_MOST = 8
_BACKENDS = ("gloo", "nccl")


class Launcher(Panel):
    """A form that launches a World and assigns it to a variable of the notebook.

    Args:
        name: of the variable.
    """

    def __init__(self, name: str = "world") -> None:
        self.world: World | None = None
        self.dashboard: Dashboard | None = None
        self._name = name
        self._going: threading.Thread | None = None
        self._cancelled = False
        self._form = Fragment(label="launch", on_action=self._act, live=False)
        super().__init__((self._form,))
        self._show()

    def _show(self, busy: str = "", said: str = "") -> None:
        most = max(2, min(_MOST, 2 * (os.cpu_count() or 2)))
        self._form.show(controls.launcher(most, _BACKENDS, busy=busy, said=said), busy or said or "no ranks yet")

    def _act(self, action: str, values: Mapping[str, str]) -> None:
        going = self._going is not None and self._going.is_alive()
        if action == "cancel" and going:
            self._cancelled = True
            self._show("cancelling as soon as the ranks have started")
        elif action == "launch" and not going:
            self._cancelled = False
            self._going = threading.Thread(target=self._launch, args=(values,), name="ddpnb launch", daemon=True)
            self._going.start()

    def _launch(self, values: Mapping[str, str]) -> None:
        ended = threading.Event()
        world, said = None, ""
        try:
            n = asked.whole(values, "n") or 4
            telling = threading.Thread(target=self._tell, args=(n, ended), name="ddpnb progress", daemon=True)
            telling.start()
            try:
                backend, fence = values.get("backend") or None, values.get("fence") or "raise"
                world = launch(n, backend=backend, fence=fence, quiet=True)
            finally:
                ended.set()
                telling.join()  # what is shown next must be the last word
        except DdpnbError as error:
            said = str(error)
        except Exception as error:  # the panel is expendable: what failed is said, and one may try again
            said = f"the launch failed: {type(error).__name__}: {error}"
        if world is not None and self._cancelled:
            world.close()
            world, said = None, "The launch was cancelled; no processes are left."
        if world is None:
            self._show(said=said)
            return
        self.world = world
        _name(self._name, world)
        self.dashboard = Dashboard(world)
        self.box.children = self.dashboard.box.children

    def _tell(self, n: int, ended: threading.Event) -> None:
        began = time.monotonic()
        while not ended.wait(0.25):
            if not self._cancelled:
                self._show(f"starting {n} ranks: {time.monotonic() - began:.0f} s")


def _name(name: str, world: World) -> None:
    """Assign the World to a variable of this name in the notebook, if there is one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.push({name: world})
