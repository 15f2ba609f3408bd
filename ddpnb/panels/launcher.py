"""A form that launches a World, attaches to a job, begins a bisection or reads a report, and is then replaced by what shows that."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.errors import DdpnbError
from ddpnb.job import attach, jobs
from ddpnb.launching import launch
from ddpnb.live import LiveRanks
from ddpnb.model.recording import Recording
from ddpnb.panels import asked, variable
from ddpnb.panels.bisection_guide import Guide
from ddpnb.panels.dashboard import Dashboard
from ddpnb.panels.given_files import GivenFiles
from ddpnb.panels.panel import Panel
from ddpnb.panels.recorded import Recorded
from ddpnb.render import controls
from ddpnb.widgets.fragment import Fragment

_MOST = 8
_JOBS = 8  # that are listed
_BACKENDS = ("gloo", "nccl")
_REPORT = "A hang was reported? Drop its logs, dumps or their folder here,"


class Launcher(Panel):
    """A form that launches a World or attaches to a job that runs, and assigns it to a variable of the notebook.

    It also begins a bisection, and reads the logs and dumps of a hang.

    Args:
        name: of the variable for a World; that for a job is ``job``, that of a report ``recording``.
    """

    def __init__(self, name: str = "world") -> None:
        self.world: LiveRanks | None = None
        self.dashboard: Dashboard | None = None
        self.guide: Guide | None = None
        self.recorded: Recorded | None = None
        self._name = name
        self._going: threading.Thread | None = None
        self._cancelled = False
        self._form = Fragment(label="launch", on_action=self._act, live=False)
        self.files = GivenFiles()
        self.files.use(_REPORT, self._read)
        super().__init__((self._form, self.files.drop))
        self._show()

    def _show(self, busy: str = "", said: str = "") -> None:
        most = max(2, min(_MOST, 2 * (os.cpu_count() or 2)))
        running = [(job.folder, str(job).removeprefix(job.folder).strip()) for job in jobs()[:_JOBS]]
        told = "\n".join(f"job: {text}" for _, text in running)
        shown = controls.launcher(most, _BACKENDS, running, busy=busy, said=said)
        self._form.show(shown, busy or said or told or "no ranks yet")

    def _act(self, action: str, values: Mapping[str, str]) -> None:
        going = self._going is not None and self._going.is_alive()
        if action == "cancel" and going:
            self._cancelled = True
            self._show("cancelling as soon as the ranks have started")
        elif action == "jobs" and not going:
            self._show()
        elif action == "guide" and not going:
            self.guide = Guide()
            self.box.children = self.guide.box.children
        elif action in ("launch", "attach") and not going:
            self._cancelled = False
            work = self._launch if action == "launch" else self._attach
            self._going = threading.Thread(target=work, args=(values,), name=f"ddpnb {action}", daemon=True)
            self._going.start()

    def _read(self, recording: Recording) -> None:
        variable.assign("recording", recording)
        self.recorded = Recorded(recording, diagnose(recording), self.files)
        self._keep(self.recorded)
        self.box.children = (self.recorded.box,)

    def _attach(self, values: Mapping[str, str]) -> None:
        try:
            job = attach(values.get("folder", ""))
        except DdpnbError as error:  # it has ended meanwhile
            self._show(said=str(error))
            return
        self._begin("job", job)

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
        self._begin(self._name, world)

    def _begin(self, name: str, ranks: LiveRanks) -> None:
        self.world = ranks
        variable.assign(name, ranks)
        self.dashboard = Dashboard(ranks)
        self._keep(self.dashboard)
        self.box.children = self.dashboard.box.children

    def _keep(self, panel: Panel) -> None:
        """What is saved of this panel is that of the one that takes its place."""
        self.kept.state, panel.kept = panel.state, self.kept
        self.kept.changed()

    def _tell(self, n: int, ended: threading.Event) -> None:
        began = time.monotonic()
        while not ended.wait(0.25):
            if not self._cancelled:
                self._show(f"starting {n} ranks: {time.monotonic() - began:.0f} s")
