"""A form that launches a World, attaches to a job, begins a bisection or reads a report, and is then replaced by what shows that."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Mapping

from ddpnb.notebook import asked, variable
from ddpnb.notebook.bisection_guide import Guide
from ddpnb.notebook.dashboard import Dashboard
from ddpnb.notebook.given_files import GivenFiles
from ddpnb.notebook.panel import Panel
from ddpnb.notebook.recorded import Recorded
from ddpnb.notebook.tasks import Tasks
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording import phrases
from ddpnb.recording.recording import Recording
from ddpnb.render import controls
from ddpnb.rules.diagnose import diagnose
from ddpnb.world.job import FoundJob, attach, jobs
from ddpnb.world.launching import launch
from ddpnb.world.live import LiveRanks

_MOST = 8
_JOBS = 8  # that are listed
_LAUNCHING = "launching"
_TICK_S = 0.25  # between two updates of its progress
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
        self._cancelled = False
        self._jobs: list[tuple[str, str]] = []  # (what attach() takes, how it is shown) of those that run here
        self._tasks = Tasks(self._show)
        self._form = Fragment(label="launch", on_action=self._act, live=False)
        self.files = GivenFiles()
        self.files.use(_REPORT, self._read)
        super().__init__((self._form, self.files.drop))
        self._tasks.draw()

    def _show(self) -> None:
        """Called by ``Tasks.draw``."""
        busy, said = ", ".join(self._tasks.busy), self._tasks.said
        if busy and self._cancelled:
            busy = "cancelling as soon as the ranks have started"
        most = max(2, min(_MOST, 2 * (os.cpu_count() or 2)))
        if not busy:  # progress is shown four times a second, and a look at all processes of a host takes long
            self._jobs = [(job.target, _shown(job)) for job in jobs()[:_JOBS]]
        told = "\n".join(f"job: {text}" for _, text in self._jobs)
        shown = controls.launcher(most, _BACKENDS, self._jobs, busy=busy, said=said)
        self._form.show(shown, busy or said or told or "no ranks yet")

    def _act(self, action: str, values: Mapping[str, str]) -> None:
        going = self._tasks.busy
        if action == "cancel" and going:
            self._cancelled = True
            self._tasks.draw()
        elif going:
            return
        elif action == "jobs":
            self._tasks.say("")
        elif action == "guide":
            self.guide = Guide()
            self.box.children = self.guide.box.children
        elif action == "launch":
            self._cancelled = False
            self._tasks.start(_LAUNCHING, lambda: self._launch(values))
        elif action == "attach":
            self._cancelled = False
            self._tasks.start("attaching", lambda: self._begin("job", attach(values.get("target", ""))))

    def _read(self, recording: Recording) -> None:
        variable.assign("recording", recording)
        self.recorded = Recorded(recording, diagnose(recording), self.files)
        self._keep(self.recorded)
        self.box.children = (self.recorded.box,)

    def _launch(self, values: Mapping[str, str]) -> str:
        n = asked.whole(values, "n") or 4
        ended = threading.Event()
        telling = threading.Thread(target=self._tell, args=(n, ended), name="ddpnb progress", daemon=True)
        telling.start()
        try:
            backend, fence = values.get("backend") or None, values.get("fence") or "raise"
            world = launch(n, backend=backend, fence=fence, quiet=True)
        finally:
            ended.set()
            telling.join()  # it must not speak for the next launch
        if self._cancelled:
            world.close()
            return "The launch was cancelled; no processes are left."
        self._begin(self._name, world)
        return ""

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
        while not ended.wait(_TICK_S):
            self._tasks.progress(_LAUNCHING, f"starting {n} ranks: {time.monotonic() - began:.0f} s")


def _shown(job: FoundJob) -> str:
    program, *words = job.command or ("",)
    ranks = f"{phrases.ranks(sorted(job.ranks))} of {job.size}, process {job.ranks[min(job.ranks)]}"
    return f"{ranks}{'' if job.recorded else ', not recorded'}: {shlex.join([os.path.basename(program), *words])}"
