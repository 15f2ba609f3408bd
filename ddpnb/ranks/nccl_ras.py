"""The RAS service of a running NCCL job (NCCL 2.24 and later), asked over its text protocol.

Each process of a job listens on ``NCCL_RAS_ADDR``, by default localhost:28028, and answers for all ranks. It only reads the
state of the job. Who listens there is not known: what is read is bounded, in bytes and in time, and not trusted. Written
after NCCL's ``src/ras/client.cc``; not yet run with NCCL.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

_PORT = 28028
_CONNECT_S, _GREETING_S, _ANSWER_S = 1.0, 2.0, 15.0
_TIMEOUT = b"TIMEOUT 5\n"  # seconds that other processes get; NCCL waits for twice that at most
_LONGEST = 64 << 20
_LINE = 4096
_REFUSED = (b"ERROR", b"BUSY")


def address(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Where the processes with this environment listen; None: the service is switched off, or the address cannot be read."""
    if environment.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        return None
    host, _, port = environment.get("NCCL_RAS_ADDR", f"localhost:{_PORT}").strip().rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port[:6]) < 1 << 16:
        return None
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)  # noqa: S104 (it listens on all interfaces)


def status(where: tuple[str, int]) -> str:
    """The state of all ranks, as JSON from NCCL 2.28.7 on, before as text; empty: nobody answers as NCCL does."""
    return _ask(where, b"SET FORMAT json\n", b"VERBOSE STATUS\n")


def diagnostics(where: tuple[str, int]) -> str:
    """What NCCL finds when it compares GPUs, drivers and settings of the ranks (2.31 and later); empty: it cannot."""
    return _ask(where, b"DIAGNOSTICS\n")


def _ask(where: tuple[str, int], *commands: bytes) -> str:
    """The answer to the last command."""
    until = time.monotonic() + _ANSWER_S
    try:
        with socket.create_connection(where, _CONNECT_S) as connection:
            soon = time.monotonic() + _GREETING_S
            greeting = _line(connection, b"CLIENT PROTOCOL 2\n", soon)
            if not greeting.startswith(b"SERVER PROTOCOL ") or _line(connection, _TIMEOUT, soon) != b"OK":
                return ""
            for command in commands[:-1]:
                _line(connection, command, until)  # an older NCCL does not know it
            connection.sendall(commands[-1])
            return _rest(connection, until).decode("utf-8", "replace")
    except (OSError, ValueError):  # nobody is there, or answers something else, or not in time
        return ""


def _line(connection: socket.socket, command: bytes, until: float) -> bytes:
    connection.sendall(command)
    read = bytearray()
    while not read.endswith(b"\n"):
        more = _some(connection, 1, until)
        if not more or len(read) > _LINE:
            raise ValueError("no line")
        read += more
    return bytes(read).strip()


def _rest(connection: socket.socket, until: float) -> bytes:
    read = bytearray()
    while more := _some(connection, 1 << 16, until):
        read += more
        if len(read) > _LONGEST:
            raise ValueError("too long")
        if read.startswith(_REFUSED):
            return b""
    return bytes(read)


def _some(connection: socket.socket, most: int, until: float) -> bytes:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)
    return connection.recv(most)
