"""What a world needs, and its first processes, started before the launcher imports what it needs to follow them.

The imports of the launcher take half a second, those of a rank three times as long: they overlap.
"""

from __future__ import annotations

import contextlib
import time

from ddpnb.ranks.devices import Plan
from ddpnb.ranks.engines.cluster import EngineCluster
from ddpnb.ranks.environment import LOOPBACK, Port, ReservedPort, debug_environment, rank_environment
from ddpnb.ranks.exit_reasons import cannot_start
from ddpnb.ranks.folder import Folders
from ddpnb.recording.protocol import FOLDER


class Early:
    """What ranks need, and their processes on this machine. ``close()`` ends and removes all, until ``hand_over()``.

    Args:
        plan: the device of each rank.
        debug: set the variables of ``debug_environment``.
        port: MASTER_PORT; None: any.
        fork: what is imported before ranks are forked (``fork_server.serve``); empty: each is started by itself.
        address: see ``EngineCluster``.
        begin: start the processes; else they run on other hosts, or are started later.

    Raises:
        LaunchError: there is no room for them, or the system refuses.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        debug: bool,
        port: int | None = None,
        fork: str = "",
        address: str = LOOPBACK,
        begin: bool = True,
    ) -> None:
        self.began = time.monotonic()
        with contextlib.ExitStack() as undo:
            self.unused_port = ReservedPort()
            undo.callback(self.unused_port.release)
            self.folders = Folders(len(plan.devices))
            undo.callback(self.folders.remove)
            self.port: Port | None = None
            if port is None and begin:
                self.port = ReservedPort()
                undo.callback(self.port.release)
            self.debugging = debug_environment(plan.backend) if debug else {}
            number = self.port.port if self.port is not None else port or 0
            self.environments = {
                rank: {**rank_environment(plan, rank, number, self.debugging), FOLDER: self.folders.memory}
                for rank in (range(len(plan.devices)) if begin else ())
            }
            try:
                self.cluster = EngineCluster(self.folders.output, address)
            except (OSError, RuntimeError) as error:
                raise cannot_start(error) from None
            undo.callback(self.cluster.close)
            if begin:
                self.cluster.begin(self.environments, fork)
            self._undo = undo.pop_all()

    def hand_over(self) -> None:
        """Somebody else ends the processes, and removes what they need."""
        self._undo.pop_all()

    def close(self) -> None:
        """Kill the processes, and remove what they need."""
        self._undo.close()
