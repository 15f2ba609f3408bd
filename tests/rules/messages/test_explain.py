from __future__ import annotations

import random

import pytest

from ddpnb.model.stacks import Frame
from ddpnb.rules.messages.explain import explain, explain_text
from ddpnb.rules.messages.explained import Explained
from tests.rules.messages.told import FILE, inside, user

# Nobody's but the user's: the class and the message.
UNRELATED = [
    ("KeyError", "'labels'"),
    ("KeyError", "0"),
    ("KeyError", "'rank'"),
    ("KeyError", "'model.head.weight'"),
    ("IndexError", "list index out of range"),
    ("IndexError", "Target 7 is out of bounds."),
    ("IndexError", "Dimension out of range (expected to be in range of [-1, 0], but got 1)"),
    ("ValueError", "bad sample 2"),
    ("ValueError", "not enough values to unpack (expected 2, got 1)"),
    ("ValueError", "invalid literal for int() with base 10: 'abc'"),
    ("ValueError", "could not convert string to float: 'n/a'"),
    ("ValueError", "sampler option is mutually exclusive with shuffle"),
    ("ValueError", "Expected more than 1 value per channel when training, got input size torch.Size([1, 2])"),
    ("ValueError", "optimizer got an empty parameter list"),
    ("ValueError", "num_samples should be a positive integer value, but got num_samples=0"),
    ("AssertionError", ""),
    ("AssertionError", "rank must be 0"),
    ("AssertionError", "world size of 2 expected"),
    ("TypeError", "Net.forward() missing 1 required positional argument: 'x'"),
    ("TypeError", "unsupported operand type(s) for +: 'int' and 'NoneType'"),
    ("TypeError", "int() argument must be a string, a bytes-like object or a real number, not 'NoneType'"),
    ("TypeError", "'NoneType' object is not subscriptable"),
    ("AttributeError", "'Net' object has no attribute 'head'"),
    ("AttributeError", "'NoneType' object has no attribute 'shape'"),
    ("AttributeError", "Can't pickle local object 'main.<locals>.<lambda>'"),
    ("NameError", "name 'rank' is not defined"),
    ("UnboundLocalError", "cannot access local variable 'loss' where it is not associated with a value"),
    ("ZeroDivisionError", "division by zero"),
    ("StopIteration", ""),
    ("RecursionError", "maximum recursion depth exceeded"),
    ("NotImplementedError", 'Module [Net] is missing the required "forward" function'),
    ("ModuleNotFoundError", "No module named 'apex'"),
    ("ImportError", "libcudart.so.11.0: cannot open shared object file: No such file or directory"),
    ("FileNotFoundError", "[Errno 2] No such file or directory: 'data/train.csv'"),
    ("FileNotFoundError", "[Errno 2] No such file or directory: 'python4'"),
    ("PermissionError", "[Errno 13] Permission denied: '/data/out'"),
    ("IsADirectoryError", "[Errno 21] Is a directory: 'checkpoints'"),
    ("OSError", "[Errno 5] Input/output error"),
    ("OSError", "[Errno 98] Address already in use"),
    ("OSError", "[Errno 12] Cannot allocate memory"),
    ("OSError", "Unable to open file (unable to open file: name = 'train.h5', errno = 2)"),
    ("BlockingIOError", "[Errno 11] Resource temporarily unavailable"),
    ("TimeoutError", "timed out"),
    ("TimeoutError", "The read operation timed out"),
    ("ConnectionError", "HTTPSConnectionPool(host='hub', port=443): Max retries exceeded"),
    ("ConnectionRefusedError", "[Errno 111] Connection refused"),
    ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
    ("gaierror", "[Errno -2] Name or service not known"),
    ("EOFError", "EOF when reading a line"),
    ("EOFError", ""),
    ("JSONDecodeError", "Expecting property name enclosed in double quotes: line 1 column 10 (char 9)"),
    ("UnicodeDecodeError", "'utf-8' codec can't decode byte 0x80 in position 0: invalid start byte"),
    ("UnpicklingError", "invalid load key, 'v'."),
    ("CalledProcessError", "Command '['nvcc', '--version']' returned non-zero exit status 1."),
    ("KeyboardInterrupt", ""),
    ("SystemExit", "2"),
    ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (3x3 and 2x2)"),
    ("RuntimeError", "mat1 and mat2 must have the same dtype, but got BFloat16 and Float"),
    ("RuntimeError", "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1"),
    ("RuntimeError", "stack expects each tensor to be equal size, but got [1] at entry 0 and [2] at entry 1"),
    ("RuntimeError", "shape '[4, 5]' is invalid for input of size 21"),
    ("RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn"),
    ("RuntimeError", "grad can be implicitly created only for scalar outputs"),
    ("RuntimeError", "a view of a leaf Variable that requires grad is being used in an in-place operation."),
    ("RuntimeError", "expected scalar type Long but found Float"),
    ("RuntimeError", "CUDA error: device-side assert triggered"),
    ("RuntimeError", "CUDA error: an illegal memory access was encountered"),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    ("RuntimeError", "Function 'LogBackward0' returned nan values in its 0th output."),
    ("RuntimeError", "probability tensor contains either `inf`, `nan` or element < 0"),
    ("RuntimeError", "generator raised StopIteration"),
    ("RuntimeError", "training of rank 3 stopped: loss is nan"),
    ("RuntimeError", "no more memory budget for this experiment"),
    ("RuntimeError", "the server socket of the dashboard is closed"),
    ("RuntimeError", "An attempt has been made to start a new process before the current process has finished its bootstrapping phase."),
    ("RuntimeError", "Socket Timeout"),
    ("DistNetworkError", "Connection reset by peer"),
    ("ChildFailedError", "train.py FAILED"),
    ("MyError", "environment variable expected"),
    ("", ""),
    ("", "step 100 loss 0.31"),
]  # fmt: skip


@pytest.mark.parametrize(("exception", "message"), UNRELATED)
def test_an_unrelated_exception_is_not_claimed(exception, message):
    for frames in (
        (),
        (user(1),),
        (user(1), inside("numpy/core/x.py", "f")),
        (inside("torch/nn/modules/module.py", "_call_impl"), user(1)),
    ):
        assert explain(message, exception, frames=frames, sources={FILE: "loss = step(model, batch)\n"}) is None


@pytest.mark.parametrize(("exception", "message"), [case for case in UNRELATED if case[0]])
def test_an_unrelated_exception_is_not_claimed_from_a_traceback_either(exception, message):
    text = f'Traceback (most recent call last):\n  File "{FILE}", line 1, in main\n    loss = step(model, batch)\n{exception}: {message}\n'
    assert explain_text(text) == []


def test_the_last_exception_comes_first():
    text = (
        "Traceback (most recent call last):\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n\nDuring handling of "
        'the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File "/home/user/train.py", '
        "line 3, in main\n    model.encode(x)\nAttributeError: 'DistributedDataParallel' object has no attribute 'encode'\n"
    )
    assert [found.code for found in explain_text(text)] == ["DDP413", "DDP205"]


def test_a_spawned_process_is_read_within_the_message():
    message = """

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 59, in _wrap
    fn(i, *args)
  File "/home/user/train.py", line 30, in worker
    dist.init_process_group("nccl")
RuntimeError: Distributed package doesn't have NCCL built in
"""
    found = explain(message, "ProcessRaisedException")
    assert found is not None
    assert found.code == "DDP106"


def test_a_message_alone_is_a_text_too():
    (found,) = explain_text("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)")
    assert found.code == "DDP205"
    assert explain_text("") == explain_text("all is well") == []


def test_a_log_line_adds_to_an_exception_that_tells_nothing():
    text = (
        "[W socket.cpp:764] [c10d] The IPv6 network addresses of (gpu-07, 29500) cannot be retrieved (gai error: -2 - Name or "
        "service not known).\nTraceback (most recent call last):\nKeyError: 'x'\n"
    )
    assert [found.code for found in explain_text(text)] == ["DDP110"]


def test_a_log_line_with_the_cause_of_an_exception_adds_nothing():
    text = (
        "[W] Thread creation failed: Resource temporarily unavailable\n"
        "Traceback (most recent call last):\nOSError: [Errno 24] Too many open files\n"
    )
    assert [found.summary for found in explain_text(text)] == ["Too many open files: the process reached its limit."]


def test_only_the_end_of_a_long_log_is_read():
    oom = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    noise = "step 1 loss 0.5\n" * 70_000
    assert explain_text(oom + noise) == []
    assert [found.code for found in explain_text(noise + oom)] == ["DDP205"]


STARTS = [
    "Parameter indices which did not receive grad for rank 1: ",
    "Expected to have finished reduction in the prior iteration before starting a new one. ",
    "Missing key(s) in state_dict: ",
    "Error(s) in loading state_dict for Net:",
    "wait timeout after 8000ms, keys: ",
    "Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(",
    "unable to write to file </torch_",
    "[Rank 0]: Ranks 1, 2, ",
    "CUDA out of memory. Tried to allocate ",
    "CheckpointException ranks:dict_keys([0])\nTraceback (most recent call last): (RANK 0)\n",
    "[Errno 2] No such file or directory: '",
    "Global rank 99999999999999999999999999",
    "DDP expects same model across all ranks, but Rank 0 has ",
]


@pytest.mark.parametrize("start", STARTS)
def test_a_message_that_goes_on_for_ever_is_read_in_bounds(start):
    # A pattern that looks back takes minutes for these.
    for filler in ("1 ", "'", '"', "a.b", "\n", "[", "Rank 1 is running collective: ", "\x00"):
        for text in (start + filler * (8_000 // len(filler)), start * (8_000 // len(start)) + filler):
            told = explain(text, "RuntimeError", names=["a"] * 9)
            assert told is None or isinstance(told, Explained)
            explain_text(f"RuntimeError: {text}")


def test_a_message_of_megabytes_is_cut():
    assert explain("x" * 3_000_000 + " CUDA out of memory.", "RuntimeError") is None


def test_odd_input_never_raises():
    chance = random.Random(7)
    pieces = [
        *STARTS,
        *(message for _, message in UNRELATED),
        "\n",
        "{",
        "}",
        "%s",
        "rank 10**99",
        "-1",
        "é\u2028\udcff",
    ]
    for _ in range(100):
        text = "".join(chance.choice(pieces) for _ in range(chance.randint(1, 9)))
        frames = [
            Frame(
                chance.choice(["", "?", FILE, "/torch/serialization.py"]),
                chance.choice([0, -1, 10**9, 2]),
                "f",
                chance.random() < 0.5,
            )
        ]
        explain(
            text,
            chance.choice(["", "KeyError", "AttributeError", "EOFError"]),
            names=["", "é", "a.b"],
            frames=frames,
            sources={FILE: "x\n(", "?": "\0"},
            traceback=text,
        )
        explain_text(text)
