"""Another user of the host reads what a generous umask leaves open: files here hold variables, output and source."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ddpnb.recording.files import make_folder, write_private, write_whole
from tests.cli.jobs import TORCHRUN

README = Path(__file__).parent.parent / "recordings" / "readme.ddpnb"
UMASKS = [0o000, 0o022, 0o077]


@pytest.fixture(params=UMASKS, ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder):
    """Those of all that lies in a folder: files, and folders."""
    found = {True: set(), False: set()}
    for path in Path(folder).rglob("*"):
        status = path.lstat()
        found[stat.S_ISDIR(status.st_mode)].add(stat.S_IMODE(status.st_mode))
    return found[False], found[True]


def test_what_is_written(tmp_path, umask):
    make_folder(str(tmp_path / "a" / "b"))
    write_private(str(tmp_path / "a" / "b" / "c"), "text")
    write_whole(tmp_path / "a" / "d", "text")
    assert modes(tmp_path) == ({0o600}, {0o700})


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path):
    (tmp_path / "v.json").write_text("earlier")
    (tmp_path / "v.json").chmod(0o666)
    write_whole(tmp_path / "v.json", "text")
    assert modes(tmp_path)[0] == {0o600}


def test_a_pipe_stays_as_it_is(tmp_path, umask):
    os.mkfifo(tmp_path / "pipe")
    os.chmod(tmp_path / "pipe", 0o622)
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    while True:
        try:
            write_whole(tmp_path / "pipe", "text")
            break
        except Exception:  # the reader has not opened it yet
            reader.join(0.02)
    reader.join(60)
    assert read == ["text"] and stat.S_IMODE(os.stat(tmp_path / "pipe").st_mode) == 0o622


@pytest.mark.parametrize("umask", [0o000], indirect=True)
def test_what_commands_write(tmp_path, cli, umask):
    for name in ("page.html", "trace.json.gz", "script.py"):
        assert cli("export", README, "-o", tmp_path / name).returncode == 0
    cli("diagnose", README, "--json", tmp_path / "v.json", "--save", tmp_path / "copy.ddpnb")
    assert len(os.listdir(tmp_path)) >= 4
    assert modes(tmp_path)[0] == {0o600}


_RANK = """
import os, sys
os.umask(0)
from ddpnb.world.plain_run import prepare_logs
from ddpnb.recording import rpc
from ddpnb.recording import protocol
from ddpnb.recorder.process.endings import Endings
from ddpnb.recorder.channel.socket_channel import SocketChannel
os.makedirs(sys.argv[1] + "/job", 0o700)
folder = protocol.claim(sys.argv[1] + "/job", "address", 0)
Endings(folder, 0).install()
SocketChannel(folder, 0, lambda _: {})
rpc.note(folder, ("name",), {"rank": 0})
prepare_logs(sys.argv[1] + "/logs/of/it", [0, 1])
"""


def test_the_files_of_a_rank(tmp_path):
    subprocess.run([sys.executable, "-c", _RANK, tmp_path], check=True, timeout=240)
    names = {path.name for path in tmp_path.rglob("rank0.*")}
    assert names >= {"rank0.status", "rank0.crash", "rank0.end.json", "rank0.sock", "rank0.key", "rank0.log"}
    assert modes(tmp_path) == ({0o600}, {0o700})


_RAISES = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
password = "secret"
raise ValueError("the end")
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "how", [["-n", "2"], ["-n", "2", "--fork"], ["--", *TORCHRUN], ["--record", "--", *TORCHRUN]],
    ids=["n", "fork", "torchrun", "record"],
)  # fmt: skip
def test_a_job(how, tmp_path):
    (tmp_path / "raises.py").write_text(_RAISES)
    kept = ["--dir", "out/rec"] if how[0] == "--record" else ["--log-dir", "out/logs"]
    kept += [] if how[0] == "--record" else ["--save", "saved.ddpnb", "--json", "v.json"]
    at = how.index("--") if "--" in how else len(how)
    command = [sys.executable, "-m", "ddpnb", "run", *how[:at], *kept, *how[at:], "raises.py"]
    done = subprocess.run(
        ["sh", "-c", 'umask 000; exec "$@"', "sh", *command], cwd=tmp_path, capture_output=True, text=True, check=False,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    (tmp_path / "raises.py").unlink()
    files, folders = modes(tmp_path)
    assert (files, folders - {0o700}) == ({0o600}, set()), done.stderr
