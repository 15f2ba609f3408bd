"""Keeps the connections of ranks that exited normally while others may still wait for these.

A rank that ends before the others closes its connections, and their calls fail before it can be seen what they wait for. So it
leaves copies here (``recorder.left_connections``) and ends. Those of a rank that failed are closed at once: its failure is
what the others must see.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ddpnb.model import status_file
from ddpnb.processes import connections
from ddpnb.processes.jobs.job_processes import Identity, identities
from ddpnb.recorder import protocol
from ddpnb.recorder.left_connections import AT_ONCE

_LOOK_S = 0.05
_SEND_S = 1.0  # for a rank to send what it leaves
_KEPT_S = 30.0  # at most: what the others wait for is known long before, or is not found
_OTHER_HOST_S = 5.0  # the same for connections to another host, which may be of something else than a rank
_MOST = 512  # descriptors of this process
_PORT = re.compile(r":(\d{1,5})(?=:|$)")


@dataclass(frozen=True)
class _Kept:
    """What one rank has left."""

    folder: str
    who: Identity
    sockets: list[socket.socket]
    others: list[str] | None  # process IDs of the ranks with which they connect it; None: on another host
    until: float

    @property
    def is_over(self) -> bool:
        """Whether nobody here may wait for it any more, or it has failed after all."""
        status = status_file.read(self.folder, self.who.rank).status
        failed = bool(status) or (status is None and not protocol.lives(str(self.who.pid)))
        alone = self.others is not None and not any(map(protocol.lives, self.others))
        return failed or alone or time.monotonic() > self.until


class KeptConnections:
    """Takes what the ranks of a job leave, until ``close()``.

    Args:
        job: the folder of the job. Without room for a socket in it, ranks leave nothing.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._kept: list[_Kept] = []
        self._closed = False
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._follow, name="ddpnb connections", daemon=True)
        with suppress(OSError):
            with protocol.within(job) as near:
                self._listening.bind(os.path.join(near, protocol.KEEPER))
            self._listening.listen(128)
            self._thread.start()

    @property
    def any(self) -> bool:
        """Whether connections are kept."""
        return bool(self._kept)

    def _follow(self) -> None:
        ready = select.poll()
        ready.register(self._listening, select.POLLIN)
        while not self._closed:
            events = ready.poll(_LOOK_S * 1000 if self._kept else None)
            with suppress(Exception):  # what comes may be anything
                if events and not self._closed:
                    self._take(self._listening.accept()[0])
            for one in [one for one in self._kept if one.is_over]:
                self._kept.remove(one)
                _close(one.sockets)

    def _take(self, connection: socket.socket) -> None:
        sockets: list[socket.socket] = []
        try:
            with connection:
                said = _received(connection, sockets)
            start, rank = str(said["start"]), int(said["rank"])
            folder = os.path.join(self._job, os.path.basename(start))
            known = identities(folder)
            mine, here = known[rank], {other: who for other, who in known.items() if other != rank and who.here}
            rows = connections.of(who.pid for who in here.values())
            ends = {(_address(other), _address(own)): pid for pid, ones in rows.items() for _, own, other in ones}
            store = {int(port) for port in _PORT.findall(mine.address)}  # whose end the others must see
            spread = len(here) + 1 < mine.size
            near, far, others = [], [], set[str]()
            for one in sockets:
                own, other = _address(one.getsockname()), _address(one.getpeername())
                if not store.isdisjoint((own[1], other[1])):
                    continue
                if (own, other) in ends:
                    near.append(one)
                    others.add(str(ends[own, other]))
                elif spread and own[0] != other[0]:
                    far.append(one)
            if len(near) + len(far) + sum(len(one.sockets) for one in self._kept) <= _MOST:
                both = (near, sorted(others), _KEPT_S), (far, None, _OTHER_HOST_S)
                now = time.monotonic()
                self._kept += [_Kept(folder, mine, ones, pids, now + most_s) for ones, pids, most_s in both if ones]
                sockets = [one for one in sockets if one not in near and one not in far]
        finally:
            _close(sockets)

    def close(self) -> None:
        """Close what is kept, and take nothing more."""
        self._closed = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread
        if self._thread.ident is not None:
            self._thread.join(_SEND_S)
        self._listening.close()
        while self._kept:
            _close(self._kept.pop().sockets)


def _received(connection: socket.socket, sockets: list[socket.socket]) -> Mapping[str, Any]:
    connection.settimeout(_SEND_S)
    text = b""
    while True:
        part, descriptors, _, _ = socket.recv_fds(connection, 4096, AT_ONCE, socket.MSG_CMSG_CLOEXEC)
        sockets += [socket.socket(fileno=descriptor) for descriptor in descriptors]
        text += part
        if not part or len(text) > 4096 or len(sockets) > 4 * _MOST:
            return json.loads(text)


def _address(name: Any) -> tuple[str, int]:
    return str(name[0]).removeprefix("::ffff:"), int(name[1])


def _close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        with suppress(OSError):
            one.close()
