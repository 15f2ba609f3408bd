"""Start-up in steps, and the new process group after a release."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from typing import Any

from ddpnb.errors import CannotWrite, WorldError
from ddpnb.recorder import entries
from ddpnb.recording import arguments, phrases
from ddpnb.recording.files import make_folder
from ddpnb.recording.recording import Recording
from ddpnb.recording.startup import STEPS
from ddpnb.render.views import new_group
from ddpnb.texts import shortened
from ddpnb.world.breakpoints import Breakpoints
from ddpnb.world.faults import Faults
from ddpnb.world.group_state import ClosedGroup
from ddpnb.world.ranks import OwnRanks
from ddpnb.world.release import Releasing
from ddpnb.world.replacement import CLEAN_S, Replacement
from ddpnb.world.startup import Startup

_BEGIN_S = 20.0  # that the ranks may take to begin a start-up
REBUILD_S, GROUP_S = 30.0, 1800.0  # time limits by default; that of a group is torch's


class Groups:
    """Creates process groups step by step."""

    def __init__(
        self,
        ranks: OwnRanks,
        breakpoints: Breakpoints,
        faults: Faults,
        replacement: Replacement,
        releasing: Releasing,
        fence: str,
    ) -> None:
        self._ranks = ranks
        self._breakpoints = breakpoints
        self._faults = faults
        self._replacement = replacement
        self._releasing = releasing
        self._fence = fence

    def init(self, timeout: float, *, like: ClosedGroup | None = None) -> Startup:
        """See ``World.init``; ``like``: the group whose place the new one takes, without being asked to."""
        arguments.seconds("timeout", timeout)
        shared = self._ranks
        with shared.opened():
            everybody = range(shared.size)
            shared.check_alive(everybody)
            shared.check_free(everybody)
            shared.closed_group, shared.half_released = None, False
            self._replacement.replace(self._replacement.clean(everybody))
            number = shared.number = shared.number + 1
            port = shared.new_port()
            folder = shared.folders.log_dir(number)
            try:
                make_folder(folder)
            except OSError as error:
                raise CannotWrite(
                    f"the start-up cannot begin: cannot create its log folder {folder}: {error.strerror}.",
                    "Free some space in TMPDIR.",
                ) from None
            shared.engines.share(folder, everybody)
            logs = {rank: os.path.join(folder, f"rank{rank}.log") for rank in everybody}
            order = {"run": number, "fence": self._fence, "backend": shared.backend, "timeout": timeout}
            if like is not None:
                order |= {"backend": like.backend, "timeout": like.timeout_s or timeout, "renews": True}
            armed: dict[int, dict[str, Any]] = {
                rank: {"holds": [], "unhurried": False, "faults": []} for rank in everybody
            }
            if like is None:  # else what is armed is for the run that follows
                holds, faults = self._breakpoints.hand_over(everybody), self._faults.hand_over(everybody)
                armed = {rank: holds[rank] | {"faults": faults[rank]} for rank in everybody}

            def begin(rank: int) -> Any:
                return shared.engines.call(rank, entries.start_up, order | armed[rank])

            def make(rank: int, step: str) -> Any:
                # Asked at each step: one that is made again after heal() has no fault any more.
                faulty = self._faults.variables(rank) if like is None else {}
                environment = {**shared.environment(rank, port), **faulty}
                own = {"step": step, "log": logs[rank], "environment": environment}
                return shared.engines.call(rank, entries.start_up, order | own)

            self._wait_begun([begin(rank) for rank in everybody])
            startup = Startup(shared.size, begin, make, shared.processes.alive, logs, shared.processes.stopped)
            weakref.finalize(startup, shared.folders.forget, number).atexit = False
            shared.startup, shared.startup_number = startup, number
            shared.in_run.clear()
            return startup

    def _wait_begun(self, begun: Sequence[Any]) -> None:
        """Wait until each rank has begun the start-up.

        Raises:
            WorldError: a rank did not begin it.
        """
        deadline = time.monotonic() + _BEGIN_S
        for rank, answer in enumerate(begun):
            hint = self._ranks.replaces(rank)
            while not answer.ready():
                alive, stopped = self._ranks.processes.alive(rank), self._ranks.processes.stopped(rank)
                if not alive or stopped or time.monotonic() > deadline:
                    self._ranks.processes.check_connection()
                    what = "is stopped" if stopped else "does not answer" if alive else "died"
                    raise WorldError(f"rank {rank} {what}: the start-up did not begin.", hint)
                answer.wait(0.05)
            try:
                answer.get(timeout=0)
            except Exception as error:
                raise WorldError(
                    f"rank {rank} could not begin the start-up: {shortened(str(error), 400)}.", hint
                ) from None

    def startup_recording(self) -> Recording:
        """The Recording of the start-up in steps."""
        with self._ranks.opened():
            return self._ranks.idle_observer(self._ranks.startup_number).record(ask=False)

    def has_group(self) -> bool:
        """Whether the ranks have a process group for functions and cells."""
        startup = self._ranks.startup
        return startup is not None and all(
            startup.state.at(rank, "process group").state == "done" for rank in range(self._ranks.size)
        )

    def renew(self) -> None:
        """Create the group again that a release has closed, if nothing but wrapped models used it, and say so.

        Raises:
            WorldError: the group could not be created.
        """
        shared = self._ranks
        closed, everybody = shared.closed_group, range(shared.size)
        if closed is None or closed.users or shared.busy() or len(shared.alive()) < shared.size:
            return
        if any(map(shared.processes.stopped, everybody)):
            return
        shared.closed_group = None
        if any(state is None or not state.closed for state in shared.groups(everybody).values()):
            return  # the user's code has made another one
        startup = self.rebuild(like=closed)
        if not shared.quiet:
            print(f"ddpnb: {' '.join(self.made(startup))}", flush=True)

    def made(self, startup: Startup) -> list[str]:
        """What ``rebuild()`` has done, in sentences."""
        facts = startup.facts("process group")
        backend = shortened(str(next(iter(facts.values())).get("backend", "")), 40).removeprefix("undefined")
        return [
            f"The process group was created again on {phrases.ranks(facts)}{f' ({backend})' if backend else ''}.",
            *new_group.sentences(facts),
        ]

    def rebuild(self, timeout: float = REBUILD_S, *, like: ClosedGroup | None = None) -> Startup:
        """See ``World.rebuild``; ``like``: as for ``init()``."""
        arguments.seconds("timeout", timeout)
        startup = self.init(GROUP_S, like=like).run("first barrier", timeout)
        if startup.state.stopped_at not in STEPS[: STEPS.index("first barrier") + 1]:
            return startup
        why = "; ".join(startup.notes()).removesuffix(".")
        alive = self._ranks.alive()
        lost = [rank for rank in range(self._ranks.size) if rank not in alive or self._ranks.processes.stopped(rank)]
        if lost:
            self._releasing.release(CLEAN_S)  # the others wait for these in vain
        raise WorldError(
            f"failed to create the process group: {why}.",
            f"world.restart({lost[0] if len(lost) == 1 else lost}), then world.rebuild()."
            if lost
            else "Call world.release(), then world.rebuild() again; world.restart() replaces the ranks that wait.",
        )
