from __future__ import annotations

import pytest

from ddpnb.model.stacks import Frame
from ddpnb.rules.messages.explain import explain, explain_text
from tests.rules.messages.told import FILE, inside, told, user


@pytest.mark.parametrize(
    ("message", "exception", "words"),
    [
        ("[Errno 24] Too many open files: '/dev/null'", "OSError", "reached its limit"),
        (
            "Too many open files. Communication with the workers is no longer possible. Please increase the limit using "
            "`ulimit -n` in the shell",
            "RuntimeError",
            "reached its limit",
        ),
        ("unable to open shared memory object </torch_12_34> in read-write mode: Too many open files (24)", "RuntimeError", "files"),
        ("received 0 items of ancdata", "RuntimeError", "files"),
        ("[enforce fail at gloo/transport/tcp/loop.cc:105] fd_ != -1. -1 vs -1. epoll_create: Too many open files", "RuntimeError", "files"),
        ("can't start new thread", "RuntimeError", "thread"),
        ("Resource temporarily unavailable", "RuntimeError", "thread"),
        ("[Errno 28] No space left on device: '/data/runs/last.pt'", "OSError", "disk is full: the write to /data"),
        ("[Errno 28] No space left on device", "OSError", "disk is full"),
        ("[Errno 27] File too large", "OSError", "ulimit -f"),
        ("[Errno 122] Disk quota exceeded", "OSError", "quota"),
        ("PytorchStreamWriter failed writing file data/3: file write failed", "RuntimeError", "disk is full"),
        ("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534", "RuntimeError", "disk is full"),
        ("basic_ios::clear: iostream error", "RuntimeError", "disk is full"),
        ("Error while creating shared memory segment /dev/shm/nccl-b1Wg4U (size 9637888)", "DistBackendError", "/dev/shm"),
    ],
)  # fmt: skip
def test_what_the_machine_has_no_more_of(message, exception, words):
    found = told(message, exception)
    assert found.code == "DDP705"
    assert words in found.summary


def test_a_thread_that_a_library_could_not_start_stands_in_the_log():
    (found,) = explain_text("libgomp: Thread creation failed: Resource temporarily unavailable\n")
    assert found.code == "DDP705"


@pytest.mark.parametrize(
    ("message", "exception", "words"),
    [
        ("[Errno 11] Resource temporarily unavailable", "BlockingIOError", "process"),
        ("[Errno 12] Cannot allocate memory", "OSError", "memory"),
    ],
)
def test_processes_that_could_not_be_started(message, exception, words):
    launched = inside("multiprocessing/popen_fork.py", "_launch")
    assert words in told(message, exception, user(), launched).summary
    assert told(message, exception, Frame(FILE, 2, "main"), source="import os\nos.fork()\n").code == "DDP705"
    assert explain(message, exception, frames=[user()]) is None
