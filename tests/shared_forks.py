"""Worlds whose ranks come from one process: torch is imported once, and not for each World."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ddpnb.ranks import descendants
from ddpnb.ranks.forks import ForkServers
from ddpnb.ranks.interpreter import TRAINING, Child


class SharedForks:
    """As ``ForkServer``, for one World, by a process that others share: ``stop()`` ends only what this World has forked.

    Args:
        servers: those of all tests.
        imports: whatever it says, the process has what training needs: one serves all.
        environment: as for ``ForkServer``.
    """

    def __init__(self, servers: ForkServers, imports: str, environment: Mapping[str, str], *_: object) -> None:
        self._server = servers.server(environment, os.sep, TRAINING)
        self._forks: list[Child] = []
        self.pid, self.ready = self._server.pid, self._server.ready

    @property
    def running(self) -> bool:
        return self._server.running

    def fork(self, order: Mapping[str, Any]) -> Child:
        self._forks.append(fork := self._server.fork(order))
        return fork

    def stop(self) -> None:
        for fork in self._forks:
            fork.begun.cancel()
        descendants.end([fork.pid for fork in self._forks if fork.pid and fork.poll() is None])
