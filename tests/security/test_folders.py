"""Another user of the host takes the names of our folders, or puts something else there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ddpnb.ranks.folder import Folders, places
from ddpnb.ranks.locked_folder import LockedFolder
from ddpnb.recorder.inject import other_host
from ddpnb.recording import protocol

MINE = f"ddpnb-{os.geteuid()}"


@pytest.fixture
def bases(tmp_path, monkeypatch):
    """Where all users make files: for memory, and for output."""
    made = tmp_path / "shm", tmp_path / "tmp"
    for base in made:
        base.mkdir()
        base.chmod(0o1777)
    monkeypatch.setenv("DDPNB_SHM", str(made[0]))
    monkeypatch.setenv("TMPDIR", str(made[1]))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return made


def folder_of_another(place):
    place.mkdir()
    os.chown(place, 65534, 65534)


def link_to_another(place):
    place.symlink_to("/usr")


def file_of_another(place):
    place.write_text("")


TAKEN = [link_to_another, file_of_another, *([folder_of_another] if os.geteuid() == 0 else [])]


@pytest.fixture(params=TAKEN)
def taken(bases, request):
    for base in bases:
        request.param(base / MINE)
    return bases


def ours(path):
    status = os.stat(path, follow_symlinks=False)
    return status.st_mode & 0o777 == 0o700 and status.st_uid == os.geteuid()


def test_a_launch_goes_on(taken):
    folders = Folders(1)
    try:
        for base, path in zip(taken, (folders.memory, folders.output), strict=True):
            above = os.path.dirname(path)
            assert above.startswith(str(base / MINE) + ".")
            assert ours(above) and ours(path)
        assert set(places()) >= {os.path.dirname(folders.memory), os.path.dirname(folders.output)}
    finally:
        folders.remove()
    assert [os.listdir(base) for base in taken] == [[MINE]] * 2


def test_all_launches_use_the_same_folder(taken):
    first = Folders(0)
    second = Folders(0)
    assert os.path.dirname(first.memory) == os.path.dirname(second.memory)
    first.remove()
    assert os.path.isdir(second.memory)
    second.remove()
    assert [os.listdir(base) for base in taken] == [[MINE]] * 2


def test_what_a_killed_launcher_has_left_is_swept(taken):
    code = "import time\nfrom ddpnb.ranks.folder import Folders\nf = Folders(0)\nprint(f.memory, flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        left = process.stdout.readline().strip()
        assert f"{MINE}." in left and os.path.isdir(left)
        process.send_signal(signal.SIGKILL)
    Folders(0).remove()
    assert not os.path.exists(left)
    assert [os.listdir(base) for base in taken] == [[MINE]] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_folders_that_another_user_has_prepared_are_not_used(bases):
    """He guesses the form of the random names, and leaves a job there."""
    for base in bases:
        for name in (MINE, f"{MINE}.0", f"{MINE}.zzzzzzzz"):
            (base / name / "job").mkdir(parents=True)
            os.chown(base / name, 65534, 65534)
    folders = Folders(0)
    try:
        assert ours(os.path.dirname(folders.memory)) and ours(os.path.dirname(folders.output))
        assert not {str(base / name) for base in bases for name in (MINE, f"{MINE}.0")} & {*places()}
    finally:
        folders.remove()


def test_the_ranks_of_another_host_find_each_other(taken, monkeypatch):
    """They have nothing in common but the secret of their job."""
    monkeypatch.setenv(protocol.HOSTS, "secret")
    folder = other_host.folder_of("/dev/shm/ddpnb-1/ddpnb-2-abc")
    assert folder == other_host.folder_of("/dev/shm/ddpnb-1/ddpnb-2-abc")
    assert Path(folder).parent.parent == taken[0] and ours(os.path.dirname(folder))
    monkeypatch.setenv(protocol.HOSTS, "another secret")
    assert folder != other_host.folder_of("/dev/shm/ddpnb-1/ddpnb-2-abc")
    LockedFolder.at(folder).remove()
    assert not os.path.exists(os.path.dirname(folder))
