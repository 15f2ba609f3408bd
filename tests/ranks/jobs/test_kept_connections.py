"""Ranks that end leave their connections to who has started the job. Real processes and sockets, without torch."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from ddpnb.ranks.jobs import kept_connections
from ddpnb.ranks.jobs.kept_connections import KeptConnections
from ddpnb.recording import protocol, status_file
from tests.waiting import until

_RANK = """
import os, socket, struct, sys
from ddpnb.recording import status_file
from ddpnb.recorder.files.left_connections import leave_connections
from ddpnb.recorder.files.status_page import StatusPage

job, status, *ports = sys.argv[1:]
connections = [socket.create_connection(("127.0.0.1", int(port))) for port in ports]
connections[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for kind in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # as gloo does
    connections[0].setsockopt(socket.SOL_SOCKET, kind, struct.pack("ll", 60, 0))
page = StatusPage(status_file.path_of(job, 1))
print("connected", flush=True)
sys.stdin.readline()
leave_connections(job, "", 1)
page.set_status(int(status))
os._exit(int(status))
"""
_PEER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection = server.accept()[0]
    try:
        connection.recv(1)
    except OSError:
        pass
"""


class Job:
    """Rank 0 waits for rank 1, which ends with this status; rank 1 has a connection to this process too."""

    def __init__(self, folder, started):
        self.folder, self._started = str(folder), started
        self.kept = KeptConnections(self.folder)
        self.waiting = self._start(_PEER)
        self.port = int(self.waiting.stdout.readline())
        self._describe(0, self.waiting)
        self.server = socket.create_server(("127.0.0.1", 0))

    def _start(self, code, *args):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._started.append(process)
        return process

    def _describe(self, rank, process):
        who = {
            "pid": process.pid, "started": protocol.started(process.pid), "host": protocol.host(), "place": protocol.place(),
            "start": "", "clock": [0, 0], "rank": rank, "size": 2, "local_size": 2, "device": "cpu", "address": "",
            "directory": "/", "command": [],
        }  # fmt: skip
        with open(f"{self.folder}/rank{rank}.json", "w") as file:
            json.dump(who, file)

    def rank_1_ends(self, status):
        """What this process reads from it then."""
        process = self._start(_RANK, self.folder, status, self.port, self.server.getsockname()[1])
        self._describe(1, process)
        assert process.stdout.readline()
        mine = self.server.accept()[0]
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(60) == status
        with mine:
            mine.settimeout(60)
            return mine.recv(1)


@pytest.fixture
def job(tmp_path):
    started = []
    made = Job(tmp_path, started)
    yield made
    made.kept.close()
    made.server.close()
    for process in started:
        process.kill()
        with process:  # closes its pipes
            pass


def test_who_waits_for_a_rank_that_has_ended_goes_on_to_wait(job):
    assert job.rank_1_ends(0) == b""  # what is none of a rank's is closed with the process
    until(lambda: job.kept.any)
    with pytest.raises(subprocess.TimeoutExpired):
        job.waiting.wait(0.5)
    job.waiting.kill()
    until(lambda: not job.kept.any)


def test_in_the_end_they_are_closed(job):
    job.rank_1_ends(0)
    until(lambda: job.kept.any)
    job.kept.close()
    assert job.waiting.wait(60) == 0


def test_the_end_of_a_rank_that_failed_is_seen(job, monkeypatch):
    monkeypatch.setattr(kept_connections, "_KEPT_S", 3600.0)
    monkeypatch.setattr(kept_connections, "_ELSEWHERE_S", 3600.0)
    job.rank_1_ends(3)
    assert job.waiting.wait(60) == 0


def test_what_else_comes_to_the_socket_is_dropped(job):
    for said in (b"", b"{", b"[]\n", b'{"start": "../..", "rank": 5}\n', b'{"start": 1, "rank": "x"}\n'):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{job.folder}/{protocol.KEEPER}")
            socket.send_fds(connection, [said or b"\n"], [job.server.fileno()])
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    assert not job.kept.any
    job.rank_1_ends(0)
    until(lambda: job.kept.any)


def test_without_a_launcher_a_rank_just_ends(job):
    job.kept.close()
    job.rank_1_ends(0)
    assert job.waiting.wait(60) == 0
    assert status_file.read(job.folder, 1).status == 0
