"""Release: interrupt a rank that waits for others, with an exception in the user's frame.

Nothing in torch frees a thread from a wait of gloo or of the store (2.13: signals, ``abort()`` and
``shutdown()`` do not). What does is to shut the connections down on which it waits; the call then
fails within milliseconds, and its error is reported as a release. A rank that waits for
something else (a lock, a queue, a sleep) gets the exception from a signal.

Gloo (as in torch 2.13) wakes a wait only for an operation that it has not begun to send or to receive. An
operation that is in its send queue when the connection ends is forgotten: its thread waits until the group's
time-out, and the process group cannot be destroyed before. So a connection is ended in this order:

1. The door refuses new calls on all ranks, and the launcher waits until nothing is in transit.
2. Each rank shuts down the reading side alone. A write that fails (EPIPE) before gloo has read the end of the
   stream would put its operation into the send queue.
3. The socket stays open, by a duplicate of its descriptor, until all ranks are back: gloo closes its own as soon
   as it reads the end, and the peer's next write would fail.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from ddpnb.errors import Released
from ddpnb.recorder.files.left_connections import connections_of_gloo
from ddpnb.recorder.stacks.user_frames import is_own_file
from ddpnb.recording.descriptors import Descriptor, as_socket
from ddpnb.recording.protocol import RELEASE_SIGNAL

_RETRIES_S = 60.0  # torch retries ever more rarely
_ABORTING = "ddpnb abort"  # threads that may wait for a device
_LOOKS_S = 0.05  # between two checks whether it still retries
_FAULTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "faults") + os.sep
_raising: set[str] = set()  # names of modules
_CLOSED = (
    "the process group was closed by world.release(); world.rebuild() (or %ddp_release --rebuild) creates a new one"
)
_KEPT = "The process and its variables are kept: world.rebuild() creates a new process group."
_ENDS = "The program ends here unless it handles this exception."


def raises_releases(module: str) -> None:
    """Register a module whose functions wait and raise ``Released`` themselves: the signal raises nothing there."""
    _raising.add(module)


class Release:
    """What was asked of this rank, and the exceptions that follow. A rank has one."""

    def __init__(self) -> None:
        #: why; empty unless a release was asked for. A list, to which the door keeps a reference
        self.wanted: list[str] = []
        self._hint = _KEPT
        self._inside = False  # the main thread runs the user's code
        self._raised = False  # one exception per request
        self._is_over = False  # the request is over, but the group is closed by it
        self.torn = False  # an exception has ended a backward: the reducers of its models are of no use with this group
        self._looks_at = ""  # host:port where the main thread looks for a store now
        self._stand_ins: dict[str, threading.Thread] = {}  # by the address where each one opens a store
        self._kept_open: dict[tuple[Any, ...], Descriptor] = {}  # by own and other address
        self._keeping = threading.Lock()
        # The handler of the user's code for SIGCHLD.
        self._of_children: Any = signal.getsignal(signal.SIGCHLD) or signal.SIG_DFL
        with suppress(ValueError):  # another thread makes the process group: signals cannot free this rank
            signal.signal(RELEASE_SIGNAL, self._on_signal)

    def ask(self, why: str) -> None:
        """From here on failures are raised as a release; all ranks that share connections are asked first.

        Args:
            why: in words, for the exception.
        """
        if not self.wanted or self.is_closed:  # else it is asked again
            self.torn = False
        self._raised = self._is_over = False
        self.wanted[:] = [why]

    def interrupt(self) -> None:
        """Raise the exception in the main thread where it computes, sleeps or waits in Python; called from another one."""
        signal.pthread_kill(threading.main_thread().ident or 0, RELEASE_SIGNAL)

    def free(self, connections: Sequence[Any], *, both_ways: bool = False) -> int:
        """Free the main thread from whatever it waits for; called from another one.

        Args:
            connections: the sockets to shut down, as ``[fd, own address, other address]``, besides all of gloo's, whose
                other ends may be of ranks that have ended. They stay open until ``let_go()``.
            both_ways: shut the writing side down too, for a thread that is blocked in a write.

        Returns:
            how many were shut down.
        """
        self.interrupt()  # first: the main thread would continue with wrong numbers once its device does
        if not any(thread.name == _ABORTING for thread in threading.enumerate()):
            _abort_groups()
        how = socket.SHUT_RDWR if both_ways else socket.SHUT_RD
        of_gloo = [(fd, _address(own), _address(other)) for fd, own, other in connections_of_gloo()]
        known = {tuple(other) for _, _, other in connections}
        rest = [one for one in of_gloo if one[2] not in known]
        count = sum(self._shut_and_keep(connection, how) for connection in [*connections, *rest])
        if self._looks_at:
            self._stand_in(self._looks_at)
        self.interrupt()
        return count

    def _stand_in(self, address: str) -> None:
        """Open a store where none listens: torch's client retries uninterruptibly, but can be released once connected.

        Called at every request: the store at the address may be another rank's, which ends with its release.
        """
        self._stand_ins = {at: thread for at, thread in self._stand_ins.items() if thread.is_alive()}
        if address not in self._stand_ins:
            thread = threading.Thread(target=self._open, args=(address,), name="ddpnb release", daemon=True)
            self._stand_ins[address] = thread
            thread.start()

    def _open(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            store = TCPStore(host, int(port), None, True, timedelta(seconds=1), wait_for_workers=False)
        except (OSError, RuntimeError, ValueError):
            return  # the address of another host, or in use
        until = time.monotonic() + _RETRIES_S
        while self._looks_at == address and time.monotonic() < until:
            time.sleep(_LOOKS_S)
        del store

    def _shut_and_keep(self, connection: Any, how: int) -> int:
        copy = _copy(connection)
        if copy is None:
            return 0
        key = (*connection[1], *connection[2])
        with self._keeping:
            copy_kept = self._kept_open.setdefault(key, copy)
        if copy_kept is not copy:
            copy.close()
        return _shut_down(copy_kept, how)

    def let_go(self) -> None:
        """All ranks are idle: close the connections that were kept open until then."""
        with self._keeping:
            while self._kept_open:
                self._kept_open.popitem()[1].close()

    def cut(self, connections: Sequence[Any]) -> int:
        """Shut down connections of a group that is about to be destroyed and may have calls in flight."""
        return sum(map(_shut, connections))

    def clear(self) -> None:
        """A new group or a new run begins: the request is over."""
        self.wanted.clear()
        self.let_go()

    def closed(self) -> None:
        """Ranks were released, perhaps not this one: every later call in the group fails, and says why."""
        self._raised = self._is_over = True
        self.wanted[:] = [_CLOSED]

    @property
    def is_closed(self) -> bool:
        """Whether the group was closed by a release, and there is no new one."""
        return self.wanted[:1] == [_CLOSED]

    def settle(self) -> None:
        """A new group is about to be created: a rank that caught the exception and continues is no longer released."""
        if self._raised:
            self.wanted.clear()

    @contextmanager
    def converting(self) -> Iterator[None]:
        """Around something that waits: raises its failure as a release if one was asked for."""
        try:
            yield
        except BaseException as error:
            converted = self.convert(error)
            if converted is not error:
                raise converted from None
            raise

    @contextmanager
    def looking(self, address: str) -> Iterator[None]:
        """Around the creation of the first group, which connects to a store at this address."""
        self._looks_at = address
        try:
            with self.converting():
                yield
        finally:
            self._looks_at = ""

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Around the user's code: signals raise exceptions only inside.

        So does torch's handler of SIGCHLD, which raises in the main thread when a data loader's worker has died.
        """
        signal.signal(signal.SIGCHLD, self._of_children)
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
            self._of_children = _put_away(signal.SIGCHLD)

    def always_inside(self) -> None:
        """All that runs in this process is the user's code, and it ends with it."""
        self._inside, self._hint = True, _ENDS

    def convert(self, error: BaseException) -> BaseException:
        """The error as the user should see it: ``Released`` for what failed because of a release."""
        if not self.wanted or isinstance(error, Released) or not isinstance(error, (RuntimeError, OSError)):
            return error
        self._raised = True
        return self.exception().with_traceback(error.__traceback__)

    def convert_last(self, error: BaseException) -> BaseException:
        """The same for an error that ended the code; one outside of the group is not of an earlier release."""
        return error if self._is_over else self.convert(error)

    def exception(self) -> Released:
        self._raised = True
        return Released(f"{self.wanted[0] if self.wanted else 'released'}.", self._hint)

    def _on_signal(self, _number: int, frame: FrameType | None) -> None:
        if not self.wanted or self._raised or not self._inside or _in_own_code(frame):
            return
        raise self.exception()


def _in_own_code(frame: FrameType | None) -> bool:
    """Whether the main thread is in a module that raises releases itself, or in other code of ddpnb."""
    if frame is not None and frame.f_code.co_filename.startswith(_FAULTS):
        return False  # it blocks on purpose
    if frame is None or is_own_file(frame.f_code.co_filename):
        return True
    while frame is not None and not is_own_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") in _raising


def _put_away(number: int) -> Any:
    """Set a signal's handler to the default, and return the former one; pending signals are dropped."""
    for _ in range(100):
        with suppress(Exception):  # of the handler, for a signal that came before: it is called first
            return signal.signal(number, signal.SIG_DFL)
    return signal.SIG_DFL


def _shut(connection: Any) -> int:
    """Shut one connection down, if the descriptor still is that connection."""
    copy = _copy(connection)
    if copy is None:
        return 0
    try:
        return _shut_down(copy, socket.SHUT_RDWR)
    finally:
        copy.close()


def _shut_down(connection: Descriptor, how: int) -> int:
    try:
        with as_socket(connection.checked()) as shut:
            shut.shutdown(how)
    except OSError:
        return 0
    return 1


def _copy(connection: Any) -> Descriptor | None:
    """The connection by a descriptor of its own; None if the descriptor is another connection by now."""
    fd, own, other = connection
    try:
        copy = Descriptor(os.dup(fd))
    except OSError:
        return None
    with suppress(OSError), as_socket(copy.checked()) as named:
        if _address(named.getsockname()) == tuple(own) and _address(named.getpeername()) == tuple(other):
            return copy
    copy.close()
    return None


def _address(name: tuple[Any, ...]) -> tuple[str, int]:
    return str(name[0]).removeprefix("::ffff:"), int(name[1])


def _abort_groups() -> None:
    """Abort all groups: the way to end what a device waits for (NCCL and its like); gloo's does nothing.

    As ``_abort_process_group`` of torch does it, but the groups stay in torch's tables until they are destroyed: the models
    that are wrapped with them are found there, and a call in them fails with the reason. Each has a thread: the abort of one
    communicator may wait for a kernel that is behind one of another (pytorch#119797). Not yet run on GPUs.
    """
    for group in list(dist.distributed_c10d._world.pg_map):
        threading.Thread(target=_abort, args=(group,), name=_ABORTING, daemon=True).start()


def _abort(group: Any) -> None:
    with suppress(Exception):  # it is aborted already, or its back end cannot
        group.abort()
