"""The processes of the ranks as ``observe`` and ``control`` use them, whatever has started them: all are looked at and asked
(``RankView``), and a World also starts and ends those that it owns (``OwnedRanks``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from ddpnb.ranks.environment import LOOPBACK, Port, ReservedPort
from ddpnb.ranks.outside import Outside
from ddpnb.recording import verbs
from ddpnb.recording.ending import Ending
from ddpnb.recording.verbs import A, Request

Connection = Literal["open", "stopped", "lost"]


class Answer(Protocol):
    """What a rank returns to one call."""

    def ready(self) -> bool:
        """Whether it has arrived."""
        ...

    def wait(self, timeout: float | None = None) -> None:
        """Wait for it at most this many seconds."""
        ...

    def successful(self) -> bool:
        """Whether the call, which is over, ended without an exception."""
        ...

    def exception(self) -> Any:
        """The exception that ended the call, in words of the rank; None if there was none."""
        ...

    def get(self, timeout: float | None = None) -> Any:
        """The JSON value that ``OwnedRanks.call`` returned on the rank.

        Raises:
            ValueError: it is not JSON.
            Exception: that of the call, or a time-out.
        """
        ...

    def load(self, timeout: float | None = None) -> Any:
        """What the function of ``OwnedRanks.begin`` returned; unpickling it runs what the rank put into it."""
        ...


class RankView(Protocol):
    """One process per rank: its state, and answers to requests. Ranks are counted from 0.

    A thread of the rank's own answers ``ask()``, also while the main thread hangs.
    """

    #: whether the process of a rank ends with the script that it runs
    ends_with_script: bool
    #: whether a recorder runs in them; if not, ``ask()`` answers requests for stacks alone
    recorded: bool = True

    # -- state

    @property
    def connection(self) -> Connection:
        """Whether ranks can be reached now: unless it is ``open``, a missing answer says nothing about a rank."""
        return "open"

    def check_connection(self) -> None:
        """Raise an exception if no rank can be reached.

        Raises:
            WorldError: the connection is stopped or lost, or this is a forked child.
        """

    def check_owner(self) -> None:
        """Raise WorldError in a forked child of the process that started them."""

    def pid(self, rank: int) -> int:
        """The process ID."""
        ...

    def device(self, rank: int) -> str:
        """The device that the rank was given: ``cpu``, ``cuda:0``."""
        ...

    def visible_devices(self, rank: int) -> str | None:
        """The rank's CUDA_VISIBLE_DEVICES, by which its devices are counted; None: it has none, or it is not known."""
        ...

    def listens(self, rank: int) -> bool:
        """Whether the process has begun to answer requests: if not, no answer says nothing about it."""
        ...

    def alive(self, rank: int) -> bool:
        """Whether the process lives, according to the kernel; its exit status is known a moment later."""
        ...

    def stopped(self, rank: int) -> bool:
        """Whether the process is stopped (SIGSTOP, a debugger)."""
        ...

    def exit_status(self, rank: int) -> int | None:
        """None while the process lives or its status is not known yet; negative: the signal that killed it."""
        ...

    def parent_of(self, rank: int) -> str:  # noqa: ARG002
        """The process that has started the rank, in words, if it lives and is not of ddpnb; else empty."""
        return ""

    def before_joining(self, rank: int) -> Ending | None:  # noqa: ARG002
        """How the process that was to be this rank has ended, if it is known and never was one."""
        return None

    def joined(self, rank: int) -> bool:  # noqa: ARG002
        """Whether a process has become this rank, alive or not."""
        return True

    def may_come(self) -> bool:
        """Whether a process may still become a rank that is missing."""
        return True

    # -- their hosts

    def outside(self) -> Outside:
        """A new view of the processes from their hosts."""
        return Outside(self)

    def silent_hosts(self) -> dict[str, tuple[int, ...]]:
        """Hosts of which nothing has been heard for a while, with their ranks: what is known of these is old."""
        return {}

    def check_heard(self, ranks: Iterable[int], *, asked: bool = False) -> None:
        """Raise WorldError if nothing is heard from the host of one of these ranks.

        Args:
            ranks: the ranks.
            asked: one of them was asked just now and has not answered: then a shorter silence counts too.
        """

    # -- requests

    def ask(self, ranks: Sequence[int], request: Request[A], timeout: float) -> dict[int, A]:
        """Send a request (``recorder.verbs``) to these ranks; returns the answers that came in time."""
        return self.ask_each(dict.fromkeys(ranks, request), timeout)

    def ask_each(self, requests: Mapping[int, Request[A]], timeout: float) -> dict[int, A]:
        """Send each rank its own request; the answers are in the order of the requests."""
        messages = {rank: verbs.message(request) for rank, request in requests.items()}
        return {rank: verbs.answered(requests[rank], told) for rank, told in self.exchange(messages, timeout).items()}

    def exchange(self, messages: Mapping[int, Mapping[str, Any]], timeout: float) -> dict[int, dict[str, Any]]:
        """Send each rank its own message; the answers that came in time are in the order of the messages."""
        ...


class OwnedRanks(RankView, Protocol):
    """Ranks that a World starts and ends. What ``call()`` and ``begin()`` order runs on the main thread, one after the other."""

    #: called with (ready, wanted) while processes start
    progress: Callable[[int, int], None]

    @property
    def owned(self) -> bool:
        """Whether this process started them; False in a forked child, which must leave them alone."""
        ...

    @property
    def address(self) -> str:
        """The MASTER_ADDR: where rank 0 hosts the store."""
        return LOOPBACK

    def reserve_port(self) -> Port:
        """A port for the store on the host of rank 0 that nothing else will choose."""
        return ReservedPort()

    def share(self, folder: str, ranks: Iterable[int]) -> None:
        """Make a folder of logs, which is there, known to the hosts of these ranks: what they write there is seen here."""

    def provide(self, ranks: Iterable[int]) -> None:
        """Give the hosts of these ranks what code needs there. After this, a run begins on all of them.

        Raises:
            WorldError: a host does not answer.
        """

    def call(self, rank: int, function: Callable[..., Any], *args: Any) -> Answer:
        """Call an importable function on the rank, which returns JSON.

        Raises:
            WorldError: the rank cannot be reached.
        """
        ...

    def begin(self, rank: int, function: Callable[..., Any], *args: Any) -> Answer:
        """Call an importable function on the rank, which returns any object: see ``Answer.load``.

        Raises:
            WorldError: the rank cannot be reached.
        """
        ...

    def check_files(self, paths: Sequence[str]) -> None:
        """Check that each host has these files and folders, which are on this one.

        Raises:
            WorldError: one has not.
        """

    def prepare(self, memory: str, timeout: float) -> None:
        """What comes before ``address`` and ``reserve_port`` can be asked for; ``memory``: the folder of the black boxes.

        Raises:
            LaunchError: a host cannot be used.
        """

    def start(self, environments: Mapping[int, dict[str, str]], timeout: float) -> None:
        """Start a process for each rank with its environment, and wait until all can be reached.

        Raises:
            LaunchError: a process died, or did not start within ``timeout`` seconds.
        """
        ...

    def replace(
        self, environments: Mapping[int, dict[str, str]], timeout: float, prepare: Callable[[], None] = lambda: None
    ) -> None:
        """Kill the processes of these ranks and start new ones.

        Args:
            environments: of the ranks to replace.
            timeout: seconds for the new processes to start.
            prepare: called after the old processes were killed, before new ones start.

        Raises:
            LaunchError: a process could not be ended or started; these ranks are then dead.
        """
        ...

    def kill(self, rank: int) -> None:
        """Kill the process of ``rank`` and all that it started."""
        ...

    def stop(self) -> None:
        """Kill everything that was started. Does nothing in a forked child, or if called again.

        Raises:
            WorldError: a process did not end.
        """
        ...
