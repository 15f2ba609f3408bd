"""What a release tells, and whom it interrupts."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time

import pytest

from ddpnb.errors import Released
from ddpnb.recorder.collectives import door, phases, waits
from ddpnb.recorder.holds import release as module
from ddpnb.recorder.holds.breakpoints import AtDoor, Gate
from ddpnb.recorder.holds.release import Release
from ddpnb.recording.calls import Group
from ddpnb.recording.holds import Hold
from ddpnb.recording.protocol import RELEASE_SIGNAL
from tests.nccl_like.marks import needed


@pytest.fixture
def release():
    before = signal.getsignal(RELEASE_SIGNAL)
    yield Release()
    signal.signal(RELEASE_SIGNAL, before)


def test_errors_are_convert_what_they_are(release):
    error = RuntimeError("Connection closed by peer")
    assert release.convert(error) is error
    release.ask("released by somebody")
    told = release.convert(error)
    assert isinstance(told, Released) and "released by somebody" in str(told) and "rebuild" in str(told)
    assert release.convert(told) is told
    mine = KeyError("x")
    assert release.convert(mine) is mine  # nothing that a shut connection raises


def test_around_something_that_waits(release):
    release.ask("why")
    with pytest.raises(Released), release.converting():
        raise ConnectionResetError
    with pytest.raises(ValueError, match="mine"), release.converting():
        raise ValueError("mine")


def test_a_new_group_ends_it_for_whoever_had_the_exception(release):
    release.ask("why")
    release.settle()
    assert release.wanted  # it was not raised yet
    release.convert(RuntimeError())
    release.settle()
    assert not release.wanted


def _sleep_while(another_thread_does):
    threading.Timer(0.1, another_thread_does).start()
    time.sleep(30)


def test_a_sleeping_main_thread_is_woken(release):
    began = time.monotonic()
    with pytest.raises(Released), release.inside():
        _sleep_while(lambda: (release.ask("why"), release.free([])))
    assert time.monotonic() - began < 20


def test_nothing_is_raised_outside_of_the_users_code_nor_twice(release):
    release.ask("why")
    freed = threading.Event()
    threading.Timer(0.05, lambda: (release.free([]), freed.set())).start()
    assert freed.wait(60)  # at the prompt
    with release.inside():
        with pytest.raises(Released):
            _sleep_while(lambda: release.free([]))
        release.free([])  # it was raised: the user's own clean-up goes on
        time.sleep(0.01)


def test_a_connection_that_is_none(release):
    assert release.cut([[10_000, ["127.0.0.1", 1], ["127.0.0.1", 2]]]) == 0


@pytest.fixture
def connected():
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        mine, _ = server.accept()
        for end in (mine, other):
            end.settimeout(5)
        yield mine, other
        mine.close()
        other.close()


def test_a_connection_stays_open_until_all_ranks_are_back(release, connected):
    """Gloo forgets an operation whose write fails: neither end may find the connection closed by the other."""
    mine, other = connected
    connection = [mine.fileno(), list(mine.getsockname()), list(mine.getpeername())]
    assert release.free([connection]) == 1
    assert mine.recv(1) == b""  # whoever reads is woken
    mine.sendall(b"x")  # a write does not fail
    assert other.recv(1) == b"x"
    mine.close()  # as gloo does at the end of the stream
    for _ in range(20):
        other.sendall(b"y")
        time.sleep(0.005)
    other.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.recv(1)
    other.settimeout(5)
    release.let_go()
    with pytest.raises(ConnectionResetError):  # closed with bytes unread
        other.recv(1)


def test_a_connection_is_kept_once_and_can_be_shut_both_ways(release, connected):
    mine, _ = connected
    connection = [mine.fileno(), list(mine.getsockname()), list(mine.getpeername())]
    assert release.free([connection]) == release.free([connection], both_ways=True) == 1
    assert len(release._kept_open) == 1
    with pytest.raises(BrokenPipeError):
        mine.sendall(b"x")
    release.clear()
    assert not release._kept_open


def test_a_worker_that_dies_is_told_to_the_users_code_or_to_nobody(release):
    def of_torch(*_):
        raise RuntimeError("DataLoader worker is killed")

    before = signal.getsignal(signal.SIGCHLD)
    try:
        with release.inside():
            signal.signal(signal.SIGCHLD, of_torch)
            with pytest.raises(RuntimeError, match="worker"):
                signal.raise_signal(signal.SIGCHLD)
        signal.raise_signal(signal.SIGCHLD)  # between two runs: nothing
        with pytest.raises(RuntimeError, match="worker"), release.inside():
            signal.raise_signal(signal.SIGCHLD)  # the next run of the same process has its handler again
        signal.raise_signal(signal.SIGCHLD)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_call_that_is_held_is_left_to_the_gate(release):
    """A signal that raised in the wait of the gate's condition would leave its lock in doubt."""
    gate = Gate(release)
    call = AtDoor("all_reduce", 1, Group.from_json({}), None)
    gate.hold(Hold())
    assert gate.stops(call)
    thread = threading.Thread(target=gate.wait, args=(call,), daemon=True)
    thread.start()
    while not gate.state()["held"]:
        time.sleep(0.01)
    frame = sys._current_frames()[thread.ident]
    assert frame.f_code.co_filename == threading.__file__ and module._in_own_code(frame)
    assert not module._in_own_code(sys._getframe())
    gate.resume()
    thread.join(60)
    assert {door.__name__, phases.__name__, waits.__name__} <= module._raising


def test_a_group_that_was_closed_says_so_until_there_is_a_new_one(release):
    release.ask("released by somebody")
    release.convert(RuntimeError("Connection closed by peer"))
    release.closed()
    later = release.convert(RuntimeError("Connection closed by peer"))
    assert isinstance(later, Released) and "was closed by world.release(); world.rebuild()" in str(later)
    missing = FileNotFoundError("data.pt")
    assert release.convert_last(missing) is missing  # of the code that runs since
    release.settle()
    assert release.convert(missing) is missing


ABORTED = """
import os, sys, threading
import torch.distributed as dist
from tests import nccl_like
from ddpnb.recorder.holds.release import Release

nccl_like.install()
os.environ[nccl_like.FOLDER] = sys.argv[1]
dist.init_process_group(f"cpu:gloo,{nccl_like.DEVICE}:{nccl_like.BACKEND}", rank=0, world_size=1, store=dist.HashStore())
groups = [dist.group.WORLD, dist.new_group(backend=nccl_like.BACKEND), dist.new_group(backend="gloo")]


class Python(dist.ProcessGroup):
    def abort(self):
        raise RuntimeError("it is aborted already")


dist.distributed_c10d._world.pg_map[Python(0, 1)] = None, None
Release().free([])
for thread in [one for one in threading.enumerate() if one.name == "ddpnb abort"]:
    thread.join(30)
for group in groups:
    assert group in dist.distributed_c10d._world.pg_map  # models that are wrapped with it are looked for there
    for device in group._device_types:
        print(device.type, group._get_backend(device).get_error().name)
"""


@needed
@pytest.mark.full
def test_all_groups_are_aborted_whatever_their_device_is(forked, tmp_path):
    done = forked.run(ABORTED, tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(set(done.stdout.split())) == ["COMM_ERROR", "SUCCESS", "cpu", "cuda", "npu"], done.stdout
    assert done.stdout.count("npu COMM_ERROR") == done.stdout.count("npu") == 2
