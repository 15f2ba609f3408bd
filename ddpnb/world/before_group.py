"""Whether anything happens in a command that has made no process group yet, and where its processes are if nothing does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from ddpnb.ranks.process_samples import ActivityTracker, sample
from ddpnb.ranks.py_spy import py_spy_stacks
from ddpnb.recording import rpc

_LOOK_S = 0.5  # between two looks; longer ones would not show that processes are idle
_MOST = 16  # processes whose stacks are read


class BeforeGroup:
    """Follows the processes of a command on this host until it has made a process group.

    Args:
        pid: of the command.
        elsewhere: whether it may start ranks on other hosts, of which nothing is known until they make a group.
        patience: seconds without activity, after which the places of the processes are said.
        say: prints a line.
        folder: of the job, where processes note that they wait in ``init_rpc``.
    """

    def __init__(
        self, pid: int, *, elsewhere: bool, patience: float, say: Callable[[str], None], folder: str = ""
    ) -> None:
        self._folder = folder
        self._pid, self._elsewhere, self._patience, self._say = pid, elsewhere, patience, say
        self._tracker = ActivityTracker()
        self._next, self._next_places = time.monotonic() + _LOOK_S, 0.0
        self._said_wait = self._said_places = False

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next look."""
        return time.monotonic() >= self._next

    def look(self) -> None:
        """Sample all processes; say where they are if nothing has happened for too long."""
        now = time.monotonic()
        self._next = now + _LOOK_S
        tree = sample([self._pid])[self._pid]
        self._tracker.add(tree)
        if self._tracker.idle_s > self._patience and not self._said_places and now >= self._next_places:
            self._next_places = now + self._patience
            self._tell(self._places((self._pid, *(pid for pid, _ in tree.descendants[:_MOST]))))

    def hangs(self, seconds: float) -> bool:
        """Whether nothing has happened for so long. A command that may wait for other hosts, as in a queue, does not hang."""
        return self._tracker.idle_s > seconds and (self._said_places or not self._elsewhere)

    def _places(self, pids: Iterable[int]) -> list[str]:
        """The line of the user's at which each of the processes is."""
        places: list[str] = []
        meeting = rpc.waiting(self._folder) if self._folder else {}
        for pid in pids:
            user = [frame for stack in py_spy_stacks(pid) if stack.main for frame in stack.user_frames]
            if user:
                waits = f": it waits in init_rpc, {meeting[pid]}" if pid in meeting else ""
                places.append(f"  process {pid} is at {user[-1].file}:{user[-1].line} in {user[-1].function}{waits}")
        return places

    def _tell(self, places: Sequence[str]) -> None:
        seconds = f"{self._tracker.idle_s:.0f} s"
        if places or not self._elsewhere:
            self._said_places = True
            which = "the processes on this host" if self._elsewhere else "all processes"
            self._say(
                f"no process group has been made, and {which} have been idle for {seconds}{':' if places else '.'}"
            )
            for place in places:
                self._say(place)
        elif not self._said_wait:
            self._said_wait = True
            self._say(
                f"no process group has been made, and nothing has happened on this host for {seconds}. Ranks on other hosts are "
                "heard of once they make one: until then they may wait for resources, or import their modules."
            )
