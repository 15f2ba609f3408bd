"""Keeps the connections of ranks that exited normally while others may still wait for these.

A rank that ends before the others closes its connections, and their calls fail before it can be seen what they wait for. So it
leaves copies here (``recorder.files.left_connections``) and ends. Those of a rank that failed are closed at once: its failure is
what the others must see.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ddpnb.ranks.jobs.job_processes import identities
from ddpnb.recorder.channel.socket_channel import is_trusted
from ddpnb.recorder.files.left_connections import AT_ONCE
from ddpnb.recording import protocol, status_file
from ddpnb.recording.descriptors import Descriptor, as_socket

_LOOK_S, _WAIT_S = 0.05, 1.0
_SEND_S = 1.0  # for a rank to send what it leaves
_KEPT_S = 30.0  # at most: what the others wait for is known long before, or is not found
_ELSEWHERE_S = 5.0  # the same where it is not seen here whether others live
_MOST = 512  # descriptors of this process


@dataclass(frozen=True)
class _Kept:
    """What one rank has left."""

    folder: str
    rank: int
    pid: str
    sockets: list[Descriptor]
    others: list[str]  # process IDs of the ranks here
    everybody: bool  # these are all other ranks
    until: float

    @property
    def is_over(self) -> bool:
        """Whether nobody may wait for it any more, or it has failed after all."""
        status = status_file.read(self.folder, self.rank).status
        failed = bool(status) or (status is None and not protocol.lives(self.pid))
        alone = self.everybody and not any(map(protocol.lives, self.others))
        return failed or alone or time.monotonic() > self.until


class KeptConnections:
    """Takes what the ranks of a job leave, until ``close()``.

    Args:
        job: the folder of the job. Without room for a socket in it, ranks leave nothing.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._kept: list[_Kept] = []
        self._closed = self._until_closed = False
        self._thread = threading.Thread(target=self._follow, name="ddpnb connections", daemon=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            listens = False
            with suppress(OSError):
                with protocol.within(job) as near:
                    made.bind(os.path.join(near, protocol.KEEPER))
                os.chmod(os.path.join(job, protocol.KEEPER), 0o600)
                made.listen(128)
                listens = True
            self._listening = Descriptor(made.detach())
        if listens:
            self._thread.start()

    @property
    def any(self) -> bool:
        """Whether connections are kept."""
        return bool(self._kept)

    def keep(self) -> None:
        """From now on keep them until ``close()``: a job that hangs is left as it is."""
        self._until_closed = True

    def _follow(self) -> None:
        ready = select.poll()
        number = self._listening.number
        ready.register(number, select.POLLIN)
        listens = True
        while not self._closed:
            events = ready.poll((_LOOK_S if self._kept else _WAIT_S) * 1000)
            if listens and events and not self._closed:
                listens = self._listening.is_ours
                if not listens:  # closed by the program: ranks that end leave nothing any more
                    ready.unregister(number)
                with suppress(Exception):  # what comes may be anything
                    with as_socket(self._listening.checked()) as listening:
                        connection = listening.accept()[0]
                    self._take(connection)
            for one in [one for one in self._kept if one.is_over and not self._until_closed]:
                self._kept.remove(one)
                _close(one.sockets)

    def _take(self, connection: socket.socket) -> None:
        sockets: list[Descriptor] = []
        try:
            with connection:
                if not is_trusted(connection):
                    return
                said = _received(connection, sockets)
            rank, folder = int(said["rank"]), os.path.join(self._job, os.path.basename(str(said["start"])))
            known = identities(folder)
            mine = known.pop(rank)
            others = [str(who.pid) for who in known.values() if who.here]
            everybody = len(others) + 1 >= mine.size
            until = time.monotonic() + (_KEPT_S if everybody else _ELSEWHERE_S)
            if sum(len(one.sockets) for one in self._kept) + len(sockets) <= _MOST:
                self._kept.append(_Kept(folder, rank, str(mine.pid), sockets, others, everybody, until))
                sockets = []
        finally:
            _close(sockets)

    def close(self) -> None:
        """Close what is kept, and take nothing more."""
        self._closed = True
        with suppress(OSError), as_socket(self._listening.checked()) as listening:
            listening.shutdown(socket.SHUT_RDWR)  # wakes the thread
        if self._thread.ident is not None:
            self._thread.join(_SEND_S)
        self._listening.close()
        while self._kept:
            _close(self._kept.pop().sockets)


def _received(connection: socket.socket, sockets: list[Descriptor]) -> Mapping[str, Any]:
    connection.settimeout(_SEND_S)
    text = b""
    while True:
        part, descriptors, _, _ = socket.recv_fds(connection, 4096, AT_ONCE, socket.MSG_CMSG_CLOEXEC)
        sockets += map(Descriptor, descriptors)
        text += part
        if not part or len(text) > 4096 or len(sockets) > _MOST:
            return json.loads(text)


def _close(sockets: list[Descriptor]) -> None:
    for one in sockets:
        with suppress(OSError):
            one.close()
