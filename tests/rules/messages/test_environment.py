from __future__ import annotations

import pytest

from ddpnb.rules.messages.explain import explain, explain_text
from tests.rules.messages.told import FILE, inside, told, user

EXPECTED = "Error initializing torch.distributed using env:// rendezvous: environment variable {} expected, but not set"
RENDEZVOUS = inside("torch/distributed/rendezvous.py", "_env_rendezvous_handler", 269)
NONE = "int() argument must be a string, a bytes-like object or a real number, not 'NoneType'"

BAD_RANK = """\
Traceback (most recent call last):
  File "/home/user/train.py", line 13, in <module>
    dist.init_process_group("gloo")
  File "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83, in wrapper
    return func(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/torch/distributed/rendezvous.py", line 269, in _env_rendezvous_handler
    rank = int(_get_env_or_raise("RANK"))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: invalid literal for int() with base 10: 'zero'
"""


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_variable_that_torch_misses_is_named(name):
    found = told(EXPECTED.format(name), "ValueError")
    assert found.code == "DDP101"
    assert f" {name} " in found.summary
    assert "torchrun" in found.remedy


@pytest.mark.parametrize("name", ["LOCAL_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"])
def test_a_variable_that_the_script_misses_is_named(name):
    assert name in told(f"'{name}'", "KeyError").summary


def test_a_variable_that_came_as_none_is_named_by_the_users_line():
    source = 'import os\nlocal = int(os.environ.get("LOCAL_RANK"))\n'
    found = told(NONE, "TypeError", user(2), source=source)
    assert (found.code, "LOCAL_RANK" in found.summary) == ("DDP101", True)
    assert explain(NONE, "TypeError", frames=[user(2)], sources={FILE: "x\nint(batch.get('LOCAL_RANK'))\n"}) is None
    assert explain(NONE, "TypeError") is None


@pytest.mark.parametrize("value", ["", "2  # both hosts", "node-1"])
def test_a_variable_of_the_users_own_reading_is_named_with_its_value(value):
    source = 'import os\nrank = int(os.environ["SLURM_PROCID"])\n'
    found = told(f"invalid literal for int() with base 10: {value!r}", "ValueError", user(2), source=source)
    assert found.code == "DDP101"
    assert f"SLURM_PROCID={value!r}" in found.summary


def test_a_variable_that_torch_cannot_read_is_named_by_the_quoted_line():
    (found,) = explain_text(BAD_RANK)
    assert found.code == "DDP101"
    assert "RANK='zero'" in found.summary


def test_a_variable_that_torch_cannot_read_is_guessed_without_that_line():
    found = told("invalid literal for int() with base 10: 'zero'", "ValueError", user(), RENDEZVOUS)
    assert "RANK (or WORLD_SIZE, MASTER_PORT)='zero'" in found.summary


def test_a_number_that_is_no_number_elsewhere_is_the_users():
    assert explain("invalid literal for int() with base 10: 'abc'", "ValueError", frames=[user(1)]) is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("port must have value from 0 to 65535 but was 99999.", "MASTER_PORT='99999'"),
        ("TCPStore world size cannot be 0", "WORLD_SIZE='0'"),
        ("Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing", "without rank"),
        (
            "Error initializing torch.distributed using tcp:// rendezvous: world size parameter missing",
            "without world size",
        ),
        ("Invalid rank 2, rank should be in the interval [0, 1]", "rank 2 of 2 replicas"),
    ],
)
def test_numbers_that_cannot_be(message, words):
    found = told(message, "ValueError")
    assert found.code == "DDP101"
    assert words in found.summary


@pytest.mark.parametrize(
    ("message", "exception", "words"),
    [
        ("Distributed package doesn't have NCCL built in", "RuntimeError", "no nccl backend"),
        (
            "Distributed package doesn't have MPI built in. MPI is only included if you build PyTorch from source on a host "
            "that has MPI installed.",
            "RuntimeError",
            "no mpi backend",
        ),
        ("Unknown c10d backend type UCC", "AssertionError", "no backend ucc"),
        ("Unknown backend type glo", "AssertionError", "no backend glo"),
        ("Invalid backend: 'glo'", "ValueError", "no backend glo"),
        ("ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "ValueError", "sees no GPU"),
        ("nccl2 requires at least one CUDA device", "RuntimeError", "sees no GPU"),
        ("No backend type associated with device type cuda", "RuntimeError", "tensors on cuda"),
        ("Torch not compiled with CUDA enabled", "AssertionError", "no CUDA support"),
    ],
)
def test_backends_that_are_not_there(message, exception, words):
    found = told(message, exception)
    assert found.code == "DDP106"
    assert words in found.summary


@pytest.mark.parametrize(
    "message",
    [
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
        "Unable to handle autograd's threading in combination with fork-based multiprocessing. "
        "See https://github.com/pytorch/pytorch/wiki/Autograd-and-Fork",
    ],
)
def test_forked_children(message):
    found = told(message)
    assert found.code == "DDP109"
    assert "spawn" in found.remedy
