"""The folders of a world: who may have one where, which are swept, and what happens where there is no room."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from ddpnb.errors import LaunchError
from ddpnb.ranks import folder, locked_folder
from ddpnb.ranks.folder import Folders
from ddpnb.recorder.files import shared_files
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.models.samples import SampleFile
from ddpnb.recording import blackbox, samples

MINE = f"ddpnb-{os.geteuid()}"


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """The place for files in memory; the one for output lies beside it."""
    (tmp_path / "shm").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("DDPNB_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "shm"


@pytest.fixture
def make():
    made = []

    def make(size=1):
        made.append(Folders(size))
        return made[-1]

    yield make
    for folders in made:
        folders.remove()


def launcher(script):
    """Another process with a world; it has made it when this returns. ``script`` says what it does then."""
    head = "import os, sys, time\nfrom ddpnb.ranks.folder import Folders\nfolders = Folders(1)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    return process, process.stdout.readline().split()


WAITING = "print(folders.memory, folders.output, flush=True)\ntime.sleep(60)\n"


def end(process):
    process.kill()
    process.wait(60)
    process.stdout.close()


# -- where they are


def test_one_in_memory_and_one_for_output(shared, make):
    folders = make()
    assert os.path.dirname(folders.memory) == str(shared / MINE)
    assert os.path.dirname(folders.output) == str(shared.parent / "tmp" / MINE)
    for path in (shared / MINE, folders.memory, folders.output):
        assert os.stat(path).st_mode & 0o777 == 0o700
    folders.remove()
    assert os.listdir(shared / MINE) == []
    assert os.listdir(shared.parent / "tmp" / MINE) == []


def test_a_folder_that_others_could_read_is_closed_to_them(shared, make):
    (shared / MINE).mkdir()
    (shared / MINE).chmod(0o777)
    make()
    assert (shared / MINE).stat().st_mode & 0o777 == 0o700


def plant_link(place, elsewhere):
    place.symlink_to(elsewhere)


def plant_file(place, _elsewhere):
    place.write_text("")


@pytest.mark.parametrize("plant", [plant_link, plant_file])
def test_what_is_no_folder_of_ours_is_not_used(shared, tmp_path, make, plant):
    (tmp_path / "elsewhere").mkdir()
    plant(shared / MINE, tmp_path / "elsewhere")
    folders = make()
    assert os.path.dirname(folders.memory).startswith(f"{shared / MINE}.")
    assert os.path.dirname(folders.output) == str(tmp_path / "tmp" / MINE)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_folder_of_another_user_is_not_used(shared, make, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)  # then whatever we make is another user's
    with pytest.raises(LaunchError, match="belongs to another user") as failed:
        make()
    assert "TMPDIR" in failed.value.hint
    assert not os.listdir(shared / "ddpnb-4000000000")


def test_no_place_at_all(shared, tmp_path, make, monkeypatch):
    plant_link(shared / MINE, tmp_path)
    plant_link(tmp_path / "tmp" / MINE, tmp_path)
    monkeypatch.setattr(tempfile, "mkdtemp", refuses(errno.EACCES))
    with pytest.raises(LaunchError, match="Permission denied") as failed:
        make()
    assert "--shm-size" in failed.value.hint


# -- which are swept


@pytest.mark.parametrize("name", ["ddpnb-99999999999999999999999", "ddpnb-999999-results", "ddpnb-4194305"])
def test_what_others_have_there_stays(shared, make, name):
    """A huge number stopped every launch; the folder of a live world in another container was removed."""
    for base in (shared, shared.parent / "tmp"):
        (base / name).mkdir()
        (base / name / "kept").write_text("")
    make()
    assert all((base / name / "kept").exists() for base in (shared, shared.parent / "tmp"))


def test_in_our_own_folder_only_what_has_our_marker_is_swept(shared, make):
    (shared / MINE / "ddpnb-999999-mine").mkdir(parents=True)
    (shared / MINE / "notes").mkdir()
    make()
    assert {"ddpnb-999999-mine", "notes"} <= {*os.listdir(shared / MINE)}


def test_a_world_whose_launcher_was_killed_is_swept(shared, make):
    process, left = launcher(WAITING)
    try:
        make()
        assert all(map(os.path.isdir, left))  # it lives
    finally:
        end(process)
    make()
    assert not any(map(os.path.exists, left))


def test_a_live_world_stays_whatever_its_process_is_called_here(shared, make, monkeypatch):
    """In another container the same folder is seen, and its process has another number, or none."""
    with monkeypatch.context() as other:
        other.setattr(os, "getpid", lambda: 999_999_999)
        folders = Folders(1)
        assert "ddpnb-999999999-" in folders.memory
    process, _ = launcher(WAITING)
    end(process)
    make()
    assert os.path.isdir(folders.memory) and os.path.isdir(folders.output)


def test_children_of_a_dead_launcher_do_not_keep_its_world(shared, make):
    """A lock is shared by whoever inherits its descriptor."""
    process, (memory, output, forked, started) = launcher(
        """
        import subprocess
        started = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
        ready, done = os.pipe()
        forked = os.fork()
        if not forked:
            os.close(1)
            os.write(done, b"x")
            time.sleep(60)
            os._exit(0)
        os.read(ready, 1)
        print(folders.memory, folders.output, forked, started.pid, flush=True)
        time.sleep(60)
        """
    )
    try:
        end(process)
        make()
        assert not os.path.exists(memory) and not os.path.exists(output)
    finally:
        os.kill(int(forked), signal.SIGKILL)
        os.kill(int(started), signal.SIGKILL)


def test_a_forked_child_does_not_remove_its_parents_world(shared, make):
    folders = make()
    os.makedirs(folders.log_dir(3))
    child = os.fork()
    if not child:
        folders.forget(3)
        folders.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.path.isdir(folders.log_dir(3)) and os.path.isdir(folders.memory)


def test_many_launch_at_once(shared):
    """Each sweeps while others make theirs: none is taken for a dead one."""
    script = (
        "import os, sys\nfrom ddpnb.ranks.folder import Folders\nfor _ in range(30):\n    folders = Folders(0)\n"
        "    assert os.path.isdir(folders.memory) and os.path.isdir(folders.output)\n    folders.remove()\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert os.listdir(shared / MINE) == []


# -- files of runs


def test_the_files_of_a_run_go_with_it(shared, make):
    folders = make()
    for number in (1, 11, 2):
        os.makedirs(folders.log_dir(number))
        for name in (f"rank0-run{number}-model0.json", f"fence-{number}-0a1b", f"rank0.box.child{number}"):
            Path(folders.memory, name).touch()
        Path(folders.ending(number, 0)).touch()
        Path(folders.output, f"cell{number}.py").touch()
    before = {*os.listdir(folders.memory), *os.listdir(folders.output)}
    folders.forget(1)
    left = {*os.listdir(folders.memory), *os.listdir(folders.output)}
    assert before - left == {
        "run1", "run1-rank0.json", "rank0-run1-model0.json", "fence-1-0a1b", "rank0.box.child1",
    }  # fmt: skip


# -- room


def allocated(path):
    return os.stat(path).st_blocks * 512


def test_all_the_space_of_a_rank_is_taken_before_it_starts(shared, make):
    """In a sparse file a rank was killed by SIGBUS, at a line of the user's."""
    folders = make(2)
    for rank in range(2):
        assert allocated(f"{folders.memory}/rank{rank}.box") >= blackbox.BOX_SIZE
        assert allocated(f"{folders.memory}/rank{rank}.samples") >= samples.FILE_SIZE


def test_a_rank_takes_the_files_that_were_reserved_and_its_successor_new_ones(shared, make):
    folders = make()
    path = f"{folders.memory}/rank0.box"
    reserved = os.stat(path).st_ino
    first = BlackBox(path, 0)
    assert os.stat(path).st_ino == reserved
    second = BlackBox(path, 0)  # nobody has reserved anything
    assert os.stat(path).st_ino != reserved
    assert allocated(path) >= blackbox.BOX_SIZE
    assert first.memory[:8] == second.memory[:8] == blackbox.MAGIC
    with folders.reserved([0]) as adopt:
        assert Path(path).read_bytes()[:8] == blackbox.MAGIC
        adopt()
    assert Path(path).read_bytes()[:8] == bytes(8)
    SampleFile(f"{folders.memory}/rank0.samples")
    assert Path(folders.memory, "rank0.samples").read_bytes()[:8] == samples.MAGIC


@pytest.fixture
def no_room():
    """No file may grow beyond a megabyte: as if the file system were full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def refuses(number):
    def allocate(*_, **__):
        raise OSError(number, os.strerror(number))

    return allocate


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, ["--shm-size", "TMPDIR"]), (errno.EFBIG, ["ulimit -f unlimited"])]
)
def test_no_room_for_the_ranks(shared, make, monkeypatch, number, advice):
    monkeypatch.setattr(shared_files, "allocate", refuses(number))
    with pytest.raises(
        LaunchError, match=r"no folder has enough space for the shared files of 4 ranks \(\d+ MB\)"
    ) as failed:
        make(4)
    assert all(text in failed.value.hint for text in advice)
    assert os.listdir(shared / MINE) == []


def test_no_room_for_another_process(shared, make, request):
    folders = make()
    path = f"{folders.memory}/rank0.box"
    before = os.stat(path).st_ino
    request.getfixturevalue("no_room")
    with pytest.raises(LaunchError, match="no space for the shared files of another process"), folders.reserved([0]):
        pass
    assert os.stat(path).st_ino == before
    assert sorted(os.listdir(folders.memory)) == [".ddpnb-world", "rank0.box", "rank0.samples"]


@pytest.mark.parametrize("room_for", [1, 2, 3])
def test_room_for_some_of_the_files_leaves_all_as_they_are(shared, make, monkeypatch, room_for):
    """A refused restart must not take the box of a rank that goes on writing to it."""
    folders = make(2)
    paths = [Path(folders.memory, f"rank{rank}.{kind}") for rank in range(2) for kind in ("box", "samples")]
    before = [path.stat().st_ino for path in paths]
    allocated = []

    def allocate(fd, size):
        if len(allocated) == room_for:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocated.append(size)

    monkeypatch.setattr(shared_files, "allocate", allocate)
    with pytest.raises(LaunchError, match="No rank was changed"), folders.reserved([0, 1]):
        pass
    assert len(allocated) == room_for
    assert [path.stat().st_ino for path in paths] == before
    assert not list(Path(folders.memory).glob("*.new"))


def test_reserved_files_that_are_not_taken_are_removed(shared, make):
    """An interrupt between the reservation and the end of the old processes: these still write to their files."""
    folders = make()
    path = f"{folders.memory}/rank0.box"
    before = os.stat(path).st_ino
    with pytest.raises(KeyboardInterrupt), folders.reserved([0]):
        raise KeyboardInterrupt
    assert os.stat(path).st_ino == before
    assert sorted(os.listdir(folders.memory)) == [".ddpnb-world", "rank0.box", "rank0.samples"]


def test_without_shared_memory_there_is_the_disk(shared, make, monkeypatch):
    monkeypatch.delenv("DDPNB_SHM")
    monkeypatch.setattr(folder, "_USUAL", str(shared / "none"))
    assert make().memory.startswith(str(shared.parent / "tmp" / MINE))


def test_a_place_that_does_not_exist_is_not_passed_over(shared, make, monkeypatch):
    monkeypatch.setenv("DDPNB_SHM", str(shared / "none"))
    with pytest.raises(LaunchError, match=r"DDPNB_SHM=.*none is not a folder"):
        make()


def test_a_relative_place_is_meant_from_where_the_launcher_is(shared, make, monkeypatch):
    monkeypatch.chdir(shared.parent)
    monkeypatch.setenv("DDPNB_SHM", "shm")
    assert os.path.dirname(make().memory) == str(shared / MINE)


# -- removal


@pytest.mark.parametrize("name", ["rank0.box", "a_folder"])
def test_what_an_interrupted_removal_leaves_is_swept(shared, monkeypatch, make, name):
    folders = Folders(1)
    left = Path(folders.memory)
    (left / "a_folder").mkdir()
    (left / "a_folder" / "file").touch()
    remove = locked_folder.remove_path

    def interrupted(path):
        if os.path.basename(path) == name:
            raise KeyboardInterrupt
        remove(path)

    with monkeypatch.context() as patched:
        patched.setattr(locked_folder, "remove_path", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folders.remove()
    assert (left / name).exists() and (left / ".ddpnb-world").exists()
    folders.remove()  # the launcher, at its end
    assert not left.exists()


def test_what_cannot_be_removed_keeps_its_marker(shared, monkeypatch, make):
    folders = Folders(1)
    left = Path(folders.memory)
    with monkeypatch.context() as patched:
        patched.setattr(locked_folder, "remove_path", lambda path: None)
        folders.remove()
    assert (left / ".ddpnb-world").exists()
    make()  # sweeps
    assert not left.exists()


def test_a_file_that_is_written_during_the_removal_leaves_a_marker(shared, monkeypatch, make):
    folders = Folders(1)
    left = Path(folders.memory)
    rmdir = os.rmdir

    def late(path, **more):
        if path == str(left):
            (left / "late").touch()
        rmdir(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", late)
        folders.remove()
    assert sorted(os.listdir(left)) == [".ddpnb-world", "late"]
    make()
    assert not left.exists()
