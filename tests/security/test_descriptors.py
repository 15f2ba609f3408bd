"""Programs that misbehave: they close all descriptors, and open files and sockets that get the numbers of ours."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from ddpnb.recorder.channel import main_wait
from ddpnb.recorder.files.left_connections import connections_of_gloo
from ddpnb.recording.descriptors import Descriptor, as_socket, out_of_the_way

# What a process of the user's keeps; afterwards all is closed, and files and sockets of the program get the numbers.
_KEEPS = """
import contextlib, gc, os, select, signal, socket, sys, threading, time
folder = sys.argv[1]
def opened():
    return sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}"))
def all_closed():
    os.closerange(3, 1 << 14)
    for number in range(3, 64):  # a file and a socket by turns
        path = os.path.join(folder, f"mine{number}")
        made = os.open(path, os.O_RDWR | os.O_CREAT) if number % 2 else socket.socket().detach()
        assert made == number
    return [os.fstat(number) for number in range(3, 64)]
def untouched(before):
    assert [os.fstat(number)[:3] for number in range(3, 64)] == [status[:3] for status in before]
    assert not any(os.path.getsize(f"/proc/self/fd/{number}") for number in range(3, 64, 2))
    print("untouched", flush=True)
"""


def run(folder, lines):
    """What a program prints; and what it ends with."""
    done = subprocess.run(
        [sys.executable, "-c", _KEEPS + textwrap.dedent(lines), str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert not done.stderr or done.returncode < 0, done.stderr
    return done.stdout.split(), done.returncode


def test_mapped_files_keep_no_descriptor(tmp_path):
    """Python's own mmap keeps a copy, and closes its number when it goes."""
    printed, status = run(
        tmp_path,
        """
    from ddpnb.recorder.files.blackbox import BlackBox
    from ddpnb.recorder.paths.path_file import PathFile
    from ddpnb.recorder.files.status_page import StatusPage
    from ddpnb.recording import blackbox
    before = opened()
    box = BlackBox(f"{folder}/rank0.box", 0)
    kept = [PathFile(f"{folder}/rank0.path"), StatusPage(f"{folder}/rank0.status")]
    assert opened() == before, opened()
    mine = all_closed()
    box.set_run(1, blackbox.RUN_ACTIVE)
    box.mark(1)
    with open(f"{folder}/rank0.box", "rb") as file:
        assert file.read(8) == blackbox.MAGIC and bytes(box.memory[:4096]) == (file.seek(0), file.read(4096))[1]
    kept.clear()
    del box
    gc.collect()
    untouched(mine)
    """,
    )
    assert (printed, status) == (["untouched"], 0)


def test_what_a_launcher_in_the_users_process_keeps(tmp_path):
    """Locks, files that are read while ranks write them, processes that are watched, connections that are kept."""
    printed, status = run(
        tmp_path,
        """
    import subprocess
    from ddpnb.recording.shared import FileBytes
    from ddpnb.ranks.jobs.exits import Exits
    from ddpnb.ranks.jobs.kept_connections import KeptConnections
    from ddpnb.ranks.locked_folder import LockedFolder
    with open(f"{folder}/read", "wb") as file:
        file.write(b"as it was")
    os.mkdir(f"{folder}/base")
    locked, read, exits, kept = LockedFolder(f"{folder}/base"), FileBytes(f"{folder}/read"), Exits(), KeptConnections(folder)
    lost = FileBytes(f"{folder}/read")
    child = subprocess.Popen(["sleep", "100"])
    exits.watch(child.pid)
    mine = all_closed()
    assert read.read(0, 9) == b"as it was"
    child.kill()
    child.wait()
    del lost, read
    locked.remove()
    kept.close()
    gc.collect()
    untouched(mine)
    kept._thread.join(60)
    assert not kept._thread.is_alive()
    """,
    )
    assert (printed, status) == (["untouched"], 0)


def test_a_daemon_of_the_users_process_closes_nothing_of_its_own(tmp_path):
    """Twice forked, all closed: what the first process kept is collected in the daemon."""
    printed, status = run(
        tmp_path,
        """
    from ddpnb.recording.shared import FileBytes
    from ddpnb.ranks.locked_folder import LockedFolder
    os.mkdir(f"{folder}/base")
    open(f"{folder}/read", "wb").close()
    locked, read = LockedFolder(f"{folder}/base"), FileBytes(f"{folder}/read")
    end, begin = os.pipe()
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        mine = all_closed()
        del read
        locked.remove()
        gc.collect()
        untouched(mine)
        os._exit(0)
    os.close(begin)
    os.read(end, 1)
    read.close()
    locked.remove()
    """,
    )
    assert (printed, status) == (["untouched"], 0)


def test_the_stack_of_a_crash_goes_to_no_file_of_the_program(tmp_path):
    printed, status = run(
        tmp_path,
        """
    from ddpnb.recorder.process.endings import Endings
    Endings(folder, 0).install()
    untouched(all_closed())
    os.kill(os.getpid(), signal.SIGSEGV)
    """,
    )
    assert (printed, status) == (["untouched"], -signal.SIGSEGV)
    assert not any(path.stat().st_size for path in tmp_path.glob("mine*"))


def test_the_stack_of_a_crash_is_still_written(tmp_path):
    assert run(
        tmp_path,
        """
    from ddpnb.recorder.process.endings import Endings
    Endings(folder, 0).install()
    os.kill(os.getpid(), signal.SIGSEGV)
    """,
    ) == ([], -signal.SIGSEGV)
    assert "Segmentation fault" in (tmp_path / "rank0.crash").read_text()


# -- one descriptor


@pytest.fixture
def number(tmp_path):
    made = os.open(tmp_path / "ours", os.O_RDWR | os.O_CREAT)
    yield made
    os.close(made)


def test_a_descriptor_that_is_another_file_by_now(number, tmp_path):
    descriptor = Descriptor(number)
    assert descriptor.is_ours and descriptor.checked() == number
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.dup2(other, number)
    os.close(other)
    assert not descriptor.is_ours
    with pytest.raises(OSError, match="closed this descriptor"):
        descriptor.checked()
    descriptor.close()
    descriptor.close()
    os.fstat(number)  # it is open


def test_descriptors_of_no_file_are_told_apart():
    """They share one inode: only their kinds differ."""
    import select

    ready, event = select.epoll(), os.eventfd(0)
    try:
        descriptor = Descriptor(event)
        os.dup2(ready.fileno(), event)
        assert not descriptor.is_ours
    finally:
        ready.close()
        os.close(event)


def test_out_of_the_way_of_the_next_files(tmp_path):
    low = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    moved = out_of_the_way(low)
    again = os.open(tmp_path / "y", os.O_RDWR | os.O_CREAT)
    try:
        assert moved > again == low
        assert not os.get_inheritable(moved)
    finally:
        os.close(moved)
        os.close(again)


@pytest.fixture
def default_timeout():
    socket.setdefaulttimeout(5)
    yield
    socket.setdefaulttimeout(None)


def test_sockets_of_the_program_block_as_before(default_timeout):
    """Python makes each socket that it is given not block, once there is a default time-out."""
    mine, other = socket.socketpair()
    with mine, other:
        for blocks in (True, False):
            os.set_blocking(mine.fileno(), blocks)
            list(connections_of_gloo())
            main_wait._received("recvfrom", [mine.fileno()])
            with as_socket(mine.fileno()) as same:
                assert same.family == socket.AF_UNIX
            assert os.get_blocking(mine.fileno()) is blocks


def test_a_look_at_what_is_no_socket_leaves_no_descriptor_open():
    end, begin = os.pipe()
    try:
        before = os.listdir("/proc/self/fd")
        assert main_wait._received("read", [end]) == -1
        assert os.listdir("/proc/self/fd") == before
    finally:
        os.close(end)
        os.close(begin)


def test_a_descriptor_that_another_thread_closes_while_it_is_looked_at(tmp_path):
    class Closing(Descriptor):
        @property
        def is_ours(self):
            os.close(self.number)
            self.number = -1
            return True

    closing = Closing(os.open(tmp_path, os.O_RDONLY))
    with pytest.raises(OSError, match="closed this descriptor"):
        closing.checked()
