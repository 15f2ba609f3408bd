"""Requests to the ranks of this host, over the Unix sockets in the folder of their World or job."""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ddpnb.recorder.channel.socket_channel import is_trusted
from ddpnb.recording.names import UNDECODABLE
from ddpnb.recording.protocol import KEY_SIZE, LONGEST_ANSWER, key_file, within

_LENGTH = struct.Struct("<I")


@dataclass
class _Asked:
    rank: int
    connection: socket.socket
    unsent: bytes
    received: bytearray = field(default_factory=bytearray)

    @property
    def answer(self) -> bytes | None:
        """The answer, once it is complete."""
        if len(self.received) < _LENGTH.size:
            return None
        length = _LENGTH.unpack_from(self.received)[0]
        if length > LONGEST_ANSWER:
            raise ValueError("the answer is too long")
        return bytes(self.received[_LENGTH.size :]) if len(self.received) >= _LENGTH.size + length else None


def ask_each(folder: str, requests: Mapping[int, Mapping[str, Any]], timeout: float) -> dict[int, dict[str, Any]]:
    """Send each rank its own request; the answers that came in time.

    Args:
        folder: of the sockets.
        requests: by rank.
        timeout: seconds.
    """
    answers: dict[int, dict[str, Any]] = {}
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for rank, request in requests.items():
            key = _key(folder, rank)
            connection = _connected(folder, rank) if key else None
            if connection is not None:
                text = json.dumps(request).encode()
                asked = _Asked(rank, connection, key + _LENGTH.pack(len(text)) + text)
                selector.register(connection, selectors.EVENT_WRITE, asked)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                asked: _Asked = key.data
                try:
                    done = _proceed(asked, selector)
                except (OSError, *UNDECODABLE):
                    done = True
                else:
                    if done and asked.answer is not None:
                        with suppress(*UNDECODABLE):
                            answer = json.loads(asked.answer)
                            if isinstance(answer, dict):
                                answers[asked.rank] = answer
                if done:
                    selector.unregister(asked.connection)
                    asked.connection.close()
        for key in list(selector.get_map().values()):
            key.data.connection.close()
    return {rank: answers[rank] for rank in requests if rank in answers}


def _key(folder: str, rank: int) -> bytes:
    """The secret of a rank; empty before it has one."""
    with suppress(OSError), open(key_file(folder, rank), "rb") as file:
        key = file.read(KEY_SIZE)
        return key if len(key) == KEY_SIZE else b""
    return b""


def _connected(folder: str, rank: int) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        with within(folder) as near:
            connection.connect(os.path.join(near, f"rank{rank}.sock"))
        if not is_trusted(connection):
            raise PermissionError("a process of another user")
    except OSError:
        connection.close()
        return None
    return connection


def _proceed(asked: _Asked, selector: selectors.BaseSelector) -> bool:
    """Send or receive what can be without waiting; whether that was all."""
    if asked.unsent:
        asked.unsent = asked.unsent[asked.connection.send(asked.unsent) :]
        if not asked.unsent:
            selector.modify(asked.connection, selectors.EVENT_READ, asked)
        return False
    part = asked.connection.recv(1 << 20)
    asked.received += part
    return not part or asked.answer is not None
