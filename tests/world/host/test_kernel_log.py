"""Lines of the kernel log: a GPU that failed, processes killed for lack of memory, neither."""

from __future__ import annotations

import os

import pytest

from ddpnb.world.host import kernel_log
from ddpnb.world.host.kernel_log import checks, parse

XID = "[ 5120.100000] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
KERNEL = (
    "[77891.408069] Memory cgroup out of memory: Killed process 32710 (python) total-vm:2114196kB, anon-rss:527908kB"
)
QUIET = "[    0.000000] Linux version 6.1.0\n[    1.200000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07"


def told(text):
    return [(one.state, one.told, one.code, one.section) for one in parse(text)]


def test_nothing_failed():
    assert told(QUIET) == [("ok", "no failures of GPUs, no lack of memory in 2 lines", "", "machine")]


def test_a_gpu_that_failed():
    ((state, text, code, section),) = told(f"{QUIET}\n{XID}\n{XID}")
    assert (state, code, section) == ("warning", "DDP206", "GPUs")
    assert text.startswith("Xid 79 2 times of the GPU at 0000:1b:00: it has fallen off the bus")


def test_each_gpu_and_error_has_a_line():
    other = XID.replace("1b", "3d").replace(" 79,", " 13,")
    found = parse(f"{XID}\n{other}\n{KERNEL}")
    assert [(one.code, one.details.get("xid")) for one in found] == [("DDP206", 79), ("DDP206", 13), ("DDP706", None)]
    assert "More likely the program" in found[1].todo


def test_processes_that_were_killed():
    old = "Mon Nov 23 09:00:00 host kernel: Out of memory: Killed process 17 (dataloader) total-vm:1kB"
    assert told(f"{KERNEL}\n{old}")[0][1] == "2 processes killed for lack of memory, the last: dataloader"


@pytest.mark.parametrize(
    ("seconds", "words"), [(30, "30 seconds"), (90, "2 minutes"), (7200, "2 hours"), (86400, "1 day")]
)
def test_how_long_ago(seconds, words, monkeypatch):
    monkeypatch.setattr(kernel_log.time, "clock_gettime", lambda _: 77891 + seconds)
    assert told(KERNEL)[0][1].endswith(f"python ({words} ago)")


def tools(folder, monkeypatch, **texts):
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_one_that_may_not_be_read(tmp_path, monkeypatch):
    refused = "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"
    tools(tmp_path, monkeypatch, dmesg=refused, journalctl="exit 0")
    (check,) = checks()
    assert check.state == "unknown" and "Operation not permitted" in check.told and "sudo dmesg -T" in check.todo


def test_the_journal_where_dmesg_is_refused(tmp_path, monkeypatch):
    tools(tmp_path, monkeypatch, dmesg="exit 1", journalctl=f'echo "{XID}"')
    assert [one.code for one in checks()] == ["DDP206"]
