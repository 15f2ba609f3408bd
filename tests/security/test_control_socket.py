"""Who else comes to the control socket of a rank, and what a program does to its descriptors. Real processes, without torch."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ddpnb.ranks.sockets import ask_each
from ddpnb.recording.protocol import KEY_SIZE, key_file

_HEAD = """
import contextlib, os, resource, socket, sys, threading, time
from ddpnb.recorder.channel import socket_channel
from ddpnb.recorder.channel.socket_channel import SocketChannel
folder = sys.argv[1]
asked = []
accepted, tried = SocketChannel._accepted, []
SocketChannel._accepted = lambda self: (tried.append(1), accepted(self))[1]
def answer(content):
    asked.append(content)
    time.sleep(content.get("waits", 0))
    return {"asked": len(asked)}
channel = SocketChannel(folder, 0, answer)
def say(*what):
    print(*what, flush=True)
"""


class Program:
    """A rank whose program is these lines; its standard input ends it."""

    def __init__(self, folder, lines):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HEAD + textwrap.dedent(lines), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.folder = str(folder)

    def line(self):
        return self._process.stdout.readline().split()

    def go_on(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def answer(self, seconds=20.0):
        """What the rank answers, as soon as it does."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if answers := ask_each(self.folder, {0: {"verb": "x"}}, 2):
                return answers[0]
            time.sleep(0.05)
        return None

    def connect(self):
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(os.path.join(self.folder, "rank0.sock"))
        peer.settimeout(20)
        return peer

    def end(self):
        self._process.stdin.close()
        self._process.kill()
        self._process.wait(20)
        self._process.stdout.close()


@pytest.fixture
def start(tmp_path):
    started = []

    def start(lines):
        started.append(Program(tmp_path, lines))
        return started[-1]

    yield start
    for program in started:
        program.end()


_CLOSES_ALL = """
    number = channel._listening.number
    os.closerange(3, 1 << 14)
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(20)]
    with contextlib.suppress(OSError):  # a number that no program reaches
        os.dup2(servers[0].fileno(), number)
    say(*(server.getsockname()[1] for server in servers))
"""


def test_a_neighbour_who_connects_to_a_port_of_the_program_reaches_the_program(start):
    """A program that misbehaves: it closes all descriptors, and its servers get their numbers."""
    program = start(
        _CLOSES_ALL
        + """
    for server in servers:
        for _ in range(2):
            with server.accept()[0] as connection:
                connection.recv(100)
                connection.sendall(b"mine")
    say(len(asked))
    sys.stdin.readline()
    """
    )
    ports = [int(port) for port in program.line()]
    assert len(ports) == 20
    key = Path(key_file(program.folder, 0)).read_bytes()
    for port in ports:
        ask_each(program.folder, {0: {}}, 0.01)
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                connection.sendall(key + struct.pack("<I", 2) + b"{}")
                assert connection.recv(4) == b"mine"
    assert program.line()
    assert program.answer() is not None  # the rank is seen again


def test_a_program_that_closes_all_descriptors_is_still_answered_for_and_nothing_spins(start):
    program = start(_CLOSES_ALL + "    sys.stdin.readline(); say(len(tried)); sys.stdin.readline()\n")
    program.line()
    before = program.answer()
    assert before is not None
    after = program.answer()
    assert after is not None and after["asked"] > before["asked"]
    time.sleep(1)
    program.go_on()
    assert int(program.line()[0]) < 20


def test_a_program_may_put_its_files_at_any_number(start):
    """A thread that waits in ``accept`` takes the lowest free one, and ``dup2`` to it fails."""
    program = start(
        """
    time.sleep(0.5)
    for number in range(3, 40):
        os.dup2(1, number)
    say("done")
    sys.stdin.readline()
    """
    )
    assert program.line() == ["done"]
    assert program.answer() is not None


def test_a_program_that_has_used_up_its_descriptors(start):
    program = start(
        """
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    files = []
    with contextlib.suppress(OSError):
        while True:
            files.append(open("/dev/null"))
    say("full")
    sys.stdin.readline()
    say(len(tried))
    while files:
        files.pop().close()
    sys.stdin.readline()
    """
    )
    assert program.line() == ["full"]
    assert ask_each(program.folder, {0: {}}, 1) == {}
    program.go_on()
    assert int(program.line()[0]) < 20
    assert program.answer() is not None


def test_a_folder_that_is_gone_ends_the_thread(start, tmp_path):
    program = start(
        """
    import shutil
    shutil.rmtree(folder)
    socket.socket(fileno=os.dup(channel._listening.number)).shutdown(socket.SHUT_RDWR)
    for thread in threading.enumerate():
        if thread.name == "ddpnb control":
            thread.join(20)
    say(sum(thread.name == "ddpnb control" for thread in threading.enumerate()))
    sys.stdin.readline()
    """
    )
    assert program.line() == ["0"]


# -- who is answered


_WAITS = "    sys.stdin.readline(); say(len(asked), threading.active_count()); sys.stdin.readline()\n"


def requests_of_strangers():
    """What somebody sends who does not know the secret, or does not keep to the form."""
    yield b"", b'{"verb": "evaluate"}', False
    yield bytes(KEY_SIZE), b'{"verb": "evaluate"}', False
    yield b"key", b"[" * 1_000_000, True
    yield b"key", b'{"a":' * 500_000, True
    yield b"key", b"1" * 100_000, True
    yield b"key", b"[]", True


def test_only_who_knows_the_secret_is_answered(start):
    """A process of another kind that reaches the socket: no secret, half of a request, a gigabyte, nested JSON."""
    program = start(_WAITS)
    right = Path(key_file(program.folder, 0))
    assert program.answer() == {"asked": 1}
    for key, content, known in requests_of_strangers():
        with program.connect() as peer, contextlib.suppress(OSError):
            peer.sendall((right.read_bytes() if known else key) + struct.pack("<I", len(content)) + content)
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(100) == b""
    for size in (1 << 30, (1 << 32) - 1):
        with program.connect() as peer, contextlib.suppress(OSError):
            peer.sendall(right.read_bytes() + struct.pack("<I", size))
            assert peer.recv(100) == b""
    program.go_on()
    assert program.line()[0] == "1"
    assert program.answer() == {"asked": 2}


def test_a_peer_that_goes_before_its_answer_ends_no_program(start):
    """SIGPIPE ends a program that has set its default action."""
    program = start("    import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + _WAITS)
    assert program.answer() == {"asked": 1}
    key, content = Path(key_file(program.folder, 0)).read_bytes(), b'{"waits": 0.2}'
    with program.connect() as peer:
        peer.sendall(key + struct.pack("<I", len(content)) + content)
    time.sleep(0.5)
    assert program.answer() is not None


def test_many_who_connect_and_say_nothing_take_few_threads(start):
    program = start(_WAITS)
    assert program.answer() == {"asked": 1}
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            peer = stack.enter_context(program.connect())
            with contextlib.suppress(OSError):  # one too many is closed at once
                peer.sendall(b"half")
        program.go_on()
        assert int(program.line()[1]) < 50
    assert program.answer() == {"asked": 2}


def test_another_user_is_not_answered_although_he_knows_the_secret(start, monkeypatch):
    program = start("    sys.stdin.readline()\n")
    assert program.answer() == {"asked": 1}
    key = Path(key_file(program.folder, 0)).read_bytes()
    if os.geteuid():  # for the launcher as well: the socket of a stranger gets no secret
        monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
        assert ask_each(program.folder, {0: {}}, 5) == {}
        return
    other = f"""
import os, socket, sys
peer = socket.socket(socket.AF_UNIX)
os.chdir({program.folder!r})
os.chmod("rank0.sock", 0o777)
os.chmod(".", 0o755)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
peer.connect("rank0.sock")
try:
    peer.sendall({key + struct.pack("<I", 2) + b"{}"!r})
    print(peer.recv(100))
except OSError:
    print(b"")
"""
    done = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.strip() == "b''"
    assert program.answer() == {"asked": 2}
