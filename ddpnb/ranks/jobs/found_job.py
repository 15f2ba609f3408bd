"""A job that runs on this host, as it was found there."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ddpnb.recording import phrases


@dataclass(frozen=True, slots=True)
class FoundJob:
    """One process group of a job, with the ranks that live.

    Attributes:
        folder: of its ranks, which ``ddpnb.attach()`` takes; empty if the job was started without ``ddpnb run``.
        ranks: rank -> process ID.
        size: of the world.
        command: of the lowest rank.
        directory: in which it runs.
        ended: ranks of this host without a process; known only of jobs that are not recorded.
        launch: the launch command, if it could be seen; for jobs that are not recorded.
    """

    folder: str
    ranks: dict[int, int]
    size: int
    command: tuple[str, ...] = ()
    directory: str = ""
    ended: tuple[int, ...] = ()
    launch: tuple[str, ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether the recorder runs in its ranks."""
        return bool(self.folder)

    @property
    def target(self) -> str:
        """What ``ddpnb attach`` takes: the folder, or the process ID of the lowest rank."""
        return self.folder or str(self.ranks[min(self.ranks)])

    @property
    def prefixed(self) -> str:
        """The command that starts the job with the recorder in its ranks."""
        return f"ddpnb run -- {shlex.join(self.launch) if self.launch else '<the command that starts the job>'}"

    def __str__(self) -> str:
        ranks = phrases.ranks(sorted(self.ranks))
        mark = "" if self.recorded else "  (not recorded)"
        return f"{self.target}  {ranks} of {self.size}  {' '.join(self.command)}{mark}"
