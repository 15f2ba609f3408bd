"""The control channel of a plain process: requests and answers over a Unix socket."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from ddpnb.ranks.sockets import ask_each
from ddpnb.recorder.channel.socket_channel import SocketChannel
from ddpnb.recording.descriptors import as_socket
from ddpnb.recording.protocol import KEY_SIZE, key_file


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    """The channels of a rank live as long as its process: here they are closed after the test."""
    made = []

    class Channel(SocketChannel):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr("tests.recorder.channel.test_socket_channel.SocketChannel", Channel)
    yield
    for channel in made:
        shutil.rmtree(channel._folder, ignore_errors=True)
        with as_socket(channel._listening.checked()) as listening:
            listening.shutdown(socket.SHUT_RDWR)  # it does not listen again: its folder is gone


@pytest.fixture(params=["", "x" * 120], ids=["short path", "long path"])
def folder(request, tmp_path):
    made = tmp_path / f"job{request.param}"
    made.mkdir()
    return str(made)


def test_requests_of_several_ranks(folder):
    for rank in range(3):
        SocketChannel(folder, rank, lambda content, rank=rank: {"rank": rank, "told": content["x"]})
    answers = ask_each(folder, {rank: {"x": "é" * 70_000} for rank in range(4)}, 5)
    assert {rank: (answer["rank"], len(answer["told"])) for rank, answer in answers.items()} == {
        rank: (rank, 70_000) for rank in range(3)
    }


def test_a_rank_that_does_not_answer_costs_the_time_limit_and_no_more(folder):
    ended = threading.Event()
    SocketChannel(folder, 0, lambda _: ended.wait(30) and {})
    SocketChannel(folder, 1, lambda _: {"ok": True})
    began = time.monotonic()
    assert ask_each(folder, {0: {}, 1: {}}, 0.3) == {1: {"ok": True}}
    assert time.monotonic() - began < 2
    ended.set()


def test_an_answer_that_json_has_not(folder):
    SocketChannel(folder, 0, lambda _: {"x": float("nan"), "y": object(), "z": "\ud800"})
    assert ask_each(folder, {0: {}}, 5)[0] == {"x": "nan", "y": "<object>", "z": "\\ud800"}


@pytest.mark.parametrize(
    "sent", [b"", b"\1", struct.pack("<I", 1 << 31), struct.pack("<I", 2) + b"[]", struct.pack("<I", 9) + b"{"]
)
def test_a_peer_that_sends_something_else_ends_nothing(sent, folder):
    SocketChannel(folder, 0, lambda _: {"ok": True})
    key = Path(key_file(folder, 0)).read_bytes()
    here = os.getcwd()
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect("rank0.sock")
            peer.sendall(key + sent)
    finally:
        os.chdir(here)
    assert ask_each(folder, {0: {}}, 5) == {0: {"ok": True}}


@pytest.mark.parametrize(
    "answer", [b"", struct.pack("<I", 1 << 31), struct.pack("<I", 2) + b"[]", struct.pack("<I", 1) + b"{"]
)
def test_a_rank_that_answers_something_else_has_not_answered(answer, folder):
    here = os.getcwd()
    os.chdir(folder)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("rank0.sock")
    os.chdir(here)
    listening.listen()
    Path(key_file(folder, 0)).write_bytes(bytes(KEY_SIZE))

    def reply():
        connection, _ = listening.accept()
        with connection:
            connection.recv(100)
            connection.sendall(answer)

    thread = threading.Thread(target=reply)
    thread.start()
    assert ask_each(folder, {0: {}}, 2) == {}
    thread.join(5)
    listening.close()
