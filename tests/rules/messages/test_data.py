from __future__ import annotations

import pytest

from ddpnb.rules.messages.explain import explain, explain_text
from tests.rules.messages.told import inside, told, user

EXITED = "DataLoader worker (pid(s) 13735) exited unexpectedly"
COLLATE = inside("torch/utils/data/_utils/collate.py", "collate", 243)

CHAINED = """\
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1291, in _try_get_data
    data = self._data_queue.get(timeout=timeout)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/signal_handling.py", line 73, in handler
    _error_if_any_worker_fails()
RuntimeError: DataLoader worker (pid 13735) is killed by signal: {}

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/user/train.py", line 31, in <module>
    for batch in loader:
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1304, in _try_get_data
    raise RuntimeError(
RuntimeError: DataLoader worker (pid(s) 13735) exited unexpectedly
"""
BUS = "Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit."
IN_WORKER = """\
Caught {0} in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]
           ^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/collate.py", line 275, in collate_tensor_fn
    return torch.stack(batch, 0, out=out)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
{0}: {1}
"""


@pytest.mark.parametrize(
    "message",
    [
        "unable to allocate shared memory(shm) for file </torch_14895_3544446417_0>: No space left on device (28)",
        "unable to write to file </torch_4001_0>: No space left on device (28)",
        "unable to mmap 144 bytes from file </torch_81_22_3>: Cannot allocate memory (12)",
        "unable to resize file </torch_81_22_3> to the right size: File too large (27)",
        "[Errno 28] No space left on device: '/dev/shm/psm_aedda422'",
        f"DataLoader worker (pid 11011) is killed by signal: {BUS}",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
    ],
)
def test_shared_memory_that_is_full(message):
    found = told(message)
    assert found.code == "DDP506"
    assert "--shm-size" in found.remedy


def test_shared_memory_of_pythons_own():
    block = inside("multiprocessing/shared_memory.py", "__init__")
    assert told("[Errno 27] File too large", "OSError", user(), block).code == "DDP506"
    assert told("[Errno 27] File too large", "OSError", user()).code == "DDP705"


@pytest.mark.parametrize(
    ("signal", "code", "words"),
    [
        ("Killed. ", "DDP505", "SIGKILL"),
        ("Segmentation fault. ", "DDP505", "native code"),
        ("CPU time limit exceeded. ", "DDP505", "CPU time limit exceeded"),
        (BUS, "DDP506", "/dev/shm"),
    ],
)
def test_the_cause_of_a_workers_end_stands_one_exception_earlier(signal, code, words):
    text = CHAINED.format(signal)
    found = told(EXITED, "RuntimeError", traceback=text)
    assert found.code == code
    assert words in found.summary
    assert explain_text(text) == [found]


def test_a_worker_that_ended_by_itself():
    assert "13735" in told(EXITED).summary
    found = told(
        "DataLoader worker (pid 9) exited unexpectedly with exit code 2. Details are lost due to multiprocessing."
    )
    assert found.code == "DDP505"
    assert "status 2" in found.summary


def test_the_traceback_of_something_else_is_not_searched_for_workers():
    assert explain("'labels'", "KeyError", traceback=CHAINED.format(BUS)) is None


def test_a_worker_that_delivers_nothing():
    found = told("DataLoader timed out after 3 seconds")
    assert found.code == "DDP507"
    assert "3 s" in found.summary


@pytest.mark.parametrize(
    ("exception", "message", "words"),
    [
        (
            "TypeError",
            "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class 'NoneType'>",
            "None.",
        ),
        (
            "RuntimeError",
            "stack expects each tensor to be equal size, but got [1] at entry 0 and [2] at entry 1",
            "[1] and [2]",
        ),
        ("RuntimeError", "each element in list of batch should be of equal size", "numbers of parts"),
        ("RuntimeError", "Trying to resize storage that is not resizable", "different sizes"),
        ("KeyError", "'mask'", "'mask'"),
    ],
)
def test_samples_of_which_no_batch_can_be_made(exception, message, words):
    here = told(message, exception, user(), COLLATE)
    in_worker = told(IN_WORKER.format(exception, message), exception, user())
    assert here.code == in_worker.code == "DDP508"
    assert words in here.summary
    assert words in in_worker.summary


@pytest.mark.parametrize(
    ("message", "exception"),
    [
        ("stack expects each tensor to be equal size, but got [1] at entry 0 and [2] at entry 1", "RuntimeError"),
        ("Trying to resize storage that is not resizable", "RuntimeError"),
        ("'mask'", "KeyError"),
    ],
)
def test_the_same_words_outside_of_collate_are_the_users(message, exception):
    assert explain(message, exception, frames=[user()]) is None


def test_the_users_own_exception_in_a_worker_is_the_users():
    assert explain(IN_WORKER.format("ValueError", "bad sample 2"), "ValueError") is None


LOADER = inside("torch/utils/data/dataloader.py", "_try_get_data", 1291)
HANDED_OVER = inside("multiprocessing/resource_sharer.py", "get_connection", 86)


@pytest.mark.parametrize("exception", ["ConnectionResetError", "EOFError"])
def test_a_connection_to_a_worker_that_broke_off(exception):
    found = explain("[Errno 104] Connection reset by peer", exception, frames=(user(44), LOADER, HANDED_OVER))
    assert found is not None and found.code == "DDP505"


def test_a_connection_of_the_scripts_own():
    found = explain("[Errno 104] Connection reset by peer", "ConnectionResetError", frames=(user(44), HANDED_OVER))
    assert found is None or found.code != "DDP505"
