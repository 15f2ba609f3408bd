from __future__ import annotations

import random

import pytest

from ddpnb.recording.messages.explain import explain, explain_text
from ddpnb.recording.stacks import Frame
from tests.recording.messages.told import EXAMPLES, FILE


def text(code: str, part: str) -> str:
    return next(example["text"] for example in EXAMPLES[code] if part in example["text"])


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


COUNT = "DDP expects same model across all ranks, but Rank {} has {} params, while rank {} has inconsistent {} params."


@pytest.mark.parametrize(
    ("code", "texts", "culprits"),
    [
        (
            "DDP401",
            [text("DDP401", "for rank 1: 4").replace("rank 1", f"rank {rank}") for rank in (0, 1, 3)],
            (0, 1, 3),
        ),
        ("DDP403", [COUNT.format(0, 2, 1, 4), COUNT.format(1, 4, 0, 2), COUNT.format(2, 2, 1, 4)], (1,)),  # they vote
        ("DDP302", [text("DDP302", "ALLGATHER")] * 2, None),
    ],
)
def test_an_error_of_several_ranks_is_told_once(code, texts, culprits):
    lines = [
        f"[rank{rank}]: {line}" for rank, one in enumerate(texts) for line in f"RuntimeError: {one}\n".splitlines()
    ]
    (found,) = explain_text("\n".join(lines))
    assert (found.code, found.culprits) == (code, culprits)


def test_a_variable_that_torch_cannot_read_is_named_by_the_quoted_line():
    place = '  File "/venv/lib/python3.11/site-packages/torch/distributed/rendezvous.py", line 269, in _env_rendezvous_handler\n'
    log = f'Traceback (most recent call last):\n{place}    rank = int(_get_env_or_raise("RANK"))\n           ^^^^^\n'
    (found,) = explain_text(f"{log}ValueError: invalid literal for int() with base 10: 'zero'\n")
    assert "RANK='zero'" in found.summary


def test_a_message_of_many_keys_is_read_as_far_as_it_goes():
    keys = [f'"layers.{i}.weight"' for i in range(30_000)]
    wrapped = [key.replace("layers", "module.layers") for key in keys]
    head = "Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "
    assert explain(head + ", ".join(keys)).code == "DDP602"
    cut = f"{head}{', '.join(keys[:200])}. \n\tUnexpected key(s) in state_dict: {', '.join(wrapped[:200])}"[:9000]
    assert "saved from a wrapped model" in explain(cut).summary


def test_a_key_of_the_wrapper_is_known_by_the_users_variables():
    source = 'state = model.state_dict()\nprobe.load(state["fc.weight"])\n'
    frame = Frame(FILE, 2, "main", locals={"model": "<torch.nn.parallel.distributed.DistributedDataParallel>"})
    found = explain("'fc.weight'", "KeyError", frames=[frame], sources={FILE: source})
    assert (found.code, found.tensors) == ("DDP413", ("fc.weight",))


def test_only_the_end_of_a_long_log_is_read():
    oom = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    noise = "step 1 loss 0.5\n" * 70_000
    assert explain_text(oom + noise) == []
    assert [found.code for found in explain_text(noise + oom)] == ["DDP205"]


def test_a_message_of_megabytes_is_cut():
    assert explain("x" * 3_000_000 + " CUDA out of memory.", "RuntimeError") is None


def test_odd_input_never_raises():
    chance = random.Random(7)
    pieces = [
        *(example["text"] for examples in EXAMPLES.values() for example in examples),
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
