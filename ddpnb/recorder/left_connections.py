"""A rank that ends leaves its connections to the launcher, which keeps them for the ranks that still wait for it.

So the process ends when its program does, with its status, and what others wait for can still be seen. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

from ddpnb.recorder.protocol import KEEPER, within

AT_ONCE = 250  # descriptors in one message; the kernel takes 253
_SEND_S = 0.5


def leave_connections(job: str, start: str, rank: int) -> None:
    """Send the launcher copies of this process's TCP connections, if there is one; it closes those that it must not keep.

    Args:
        job: its folder.
        start: the name of that of the process group; empty if it is the same.
        rank: of this process.
    """
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SEND_S)
        with within(job) as near:
            connection.connect(os.path.join(near, KEEPER))
        descriptors = list(_connections())
        said = json.dumps({"start": start, "rank": rank}).encode() + b"\n"
        for at in range(0, len(descriptors), AT_ONCE):
            socket.send_fds(connection, [said], descriptors[at : at + AT_ONCE])
            said = b"\n"


def _connections() -> Iterator[int]:
    """The descriptors of the TCP connections of this process."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            one = socket.socket(fileno=int(name))
            try:
                if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                    one.getpeername()
                    yield int(name)
            finally:
                one.detach()
