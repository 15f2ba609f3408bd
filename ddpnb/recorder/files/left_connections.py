"""A rank that ends leaves its connections to the launcher, which keeps them for the ranks that still wait for it.

So the process ends when its program does, with its status, and what others wait for can still be seen. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ddpnb.recording.descriptors import as_socket
from ddpnb.recording.protocol import KEEPER, within

AT_ONCE = 250  # descriptors in one message; the kernel takes 253
_SEND_S = 0.5
_OWN = "/proc/self/fd"
_TIME_OUTS = (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO)
_NEVER = bytes(16)  # a time-out that is not set


def leave_connections(job: str, start: str, rank: int) -> None:
    """Send the launcher copies of gloo's connections, if there is one.

    Those of the store and of the program end with the process: others may wait for that.

    Args:
        job: its folder.
        start: the name of that of the process group; empty if it is the same.
        rank: of this process.
    """
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SEND_S)
        with within(job) as near:
            connection.connect(os.path.join(near, KEEPER))
        descriptors = [fd for fd, *_ in connections_of_gloo()]
        said = json.dumps({"start": start, "rank": rank}).encode() + b"\n"
        for at in range(0, len(descriptors), AT_ONCE):
            sent = array("i", descriptors[at : at + AT_ONCE])
            connection.sendmsg([said], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)], socket.MSG_NOSIGNAL)
            said = b"\n"


def connections_of_gloo() -> Iterator[tuple[int, Any, Any]]:
    """Its connections, as descriptor, own address, other address.

    They are those with the time-out of a group, which it gives to the kernel (as in torch 2.13).
    """
    for name in os.listdir(_OWN) if os.path.isdir(_OWN) else ():
        with suppress(OSError):
            if not os.readlink(f"{_OWN}/{name}").startswith("socket:"):
                continue
            with as_socket(int(name)) as one:
                if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM:
                    continue
                time_outs = [one.getsockopt(socket.SOL_SOCKET, kind, 16) for kind in _TIME_OUTS]
                if time_outs[0] != time_outs[1] or time_outs[0] == _NEVER:
                    continue
                if not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY):
                    continue
                names = one.getsockname(), one.getpeername()
            yield int(name), *names
