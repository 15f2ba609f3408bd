"""Commands that answer, fail, are not there or hang, with real ones."""

from __future__ import annotations

import os
import time

import pytest

from ddpnb.world.host.answers import answer


def command(folder, text):
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_output(tmp_path):
    found = answer(command(tmp_path, "echo one; echo two >&2"))
    assert (found.text, found.trouble, found.absent) == ("one\n", "", False)


def test_one_that_fails(tmp_path):
    found = answer(command(tmp_path, "echo part; echo Driver/library version mismatch >&2; exit 18"))
    assert found.text == "part\n"
    assert found.trouble.endswith("tool failed with status 18: part; Driver/library version mismatch")


def test_one_that_is_not_there(tmp_path):
    found = answer(str(tmp_path / "nvidia-smi"))
    assert found.absent and found.trouble.startswith("there is no")


def test_one_that_cannot_be_run(tmp_path):
    (tmp_path / "tool").write_text("")
    found = answer(str(tmp_path / "tool"))
    assert not found.absent and "cannot be run" in found.trouble


@pytest.mark.parametrize("text", ["exec sleep 60", "trap '' TERM INT\nsleep 60 &\necho $! > child\nsleep 60"])
def test_one_that_hangs_is_ended_with_its_children(tmp_path, text, monkeypatch):
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    found = answer(command(tmp_path, text), timeout=0.5)
    assert found.trouble.endswith("did not answer within 0.5 s") and time.monotonic() - began < 20
    child = tmp_path / "child"
    if child.exists():
        pid, deadline = int(child.read_text()), time.monotonic() + 240
        while lives(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not lives(pid)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_bytes_that_are_no_text(tmp_path):
    assert os.linesep in answer(command(tmp_path, r"printf 'a\377\n'")).text
