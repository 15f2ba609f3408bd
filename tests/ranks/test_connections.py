"""Which connections lie between processes: what gloo and the store wait on, and nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from ddpnb.ranks import connections
from ddpnb.recorder.holds import release

OTHER = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("there", flush=True)
for line in sys.stdin:
    s.sendall(b"abcdef"[: int(line)])
    print("sent", flush=True)
"""


def test_between_processes():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        child = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert child.stdout.readline() == b"there\n"
            accepted, _ = listening.accept()
            mine = os.getpid()
            assert connections.between([mine]).get(mine) == []  # its other end is in nobody's hands that we know
            found = connections.between([mine, child.pid])
            assert len(found[mine]) == len(found[child.pid]) == 1
            fd, own, other = found[mine][0]
            assert fd == accepted.fileno() and own == ["127.0.0.1", port] and found[child.pid][0][1] == other
            if sys.platform == "linux":
                assert not connections.in_transit(found)
                child.stdin.write(b"3\n")
                child.stdin.flush()
                assert child.stdout.readline() == b"sent\n"
                assert connections.in_transit(found)  # three bytes that nobody has read
                assert accepted.recv(3) == b"abc"
                assert not connections.in_transit(found)
            # The descriptor is shut down only if it still is that connection.
            assert release._shut([fd, own, ["127.0.0.1", 1]]) == 0
            assert release._shut([fd, own, other]) == 1
            assert accepted.recv(1) == b""
            accepted.close()
            assert release._shut([fd, own, other]) == 0
        finally:
            child.communicate()
    assert connections.between([child.pid]) == {}
