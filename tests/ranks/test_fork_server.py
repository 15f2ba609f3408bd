"""What is imported once for all ranks that are forked, and what others see of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from ddpnb.ranks import fork_server
from ddpnb.recorder.process.shown_environment import ROOM

SHOWS = """
import os, sys
from ddpnb.recorder.process import shown_environment
room = shown_environment.room()
before = open("/proc/self/environ", "rb").read()
shown_environment.show(room, {"RANK": "3", "FOLDER": sys.argv[1]})
after = open("/proc/self/environ", "rb").read()
variables = dict(entry.split(b"=", 1) for entry in after.rstrip(b"\\0").split(b"\\0"))
print(room is not None, before == after, variables.get(b"RANK"), len(variables.get(b"FOLDER", b"")), variables[b"MARK"])
"""


@pytest.mark.parametrize(
    ("text", "module", "imported"),
    [
        ("from torch.nn.parallel import DistributedDataParallel as DDP\n", False, True),
        ("from torch.nn.parallel import DistributedDataParallel as DDP\n", True, False),
        ("import torch.distributed as dist\ndist.init_process_group()\n", False, False),
        (None, False, False),
    ],
)
def test_what_a_wrapper_needs_is_imported_for_scripts_that_name_one(tmp_path, monkeypatch, text, module, imported):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it fails
    if text is not None:
        (tmp_path / "train.py").write_text(text)
    order = {"script": str(tmp_path / "train.py"), "module": module}
    if imported:
        with pytest.raises(ImportError):
            fork_server._load_for(order)
    else:
        fork_server._load_for(order)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.parametrize(
    ("given", "folder", "shown"),
    [
        (ROOM, "/dev/shm/a", "True False b'3' 10 b'1'"),
        (ROOM, "x" * 1000, "True True None 0 b'1'"),
        ({}, "/dev/shm/a", "False True None 0 b'1'"),
    ],
)
def test_others_see_the_variables_of_a_fork_where_there_is_room(given, folder, shown):
    done = subprocess.run(
        [sys.executable, "-c", SHOWS, folder],
        env={**os.environ, **given, "MARK": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.strip() == shown


def test_without_proc_the_threads_are_those_that_python_knows(monkeypatch):
    monkeypatch.setattr(os.path, "isdir", lambda _: False)
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait, name="of an import")
    thread.start()
    assert "of an import" in fork_server._threads()
    ends.set()
    thread.join()
    assert "of an import" not in fork_server._threads()
