from __future__ import annotations

import pytest

from tests.rules.messages.told import told

VERIFY = """_verify_params_across_processes(): incompatible function arguments. The following argument types are supported:
    1. (process_group: torch._C._distributed_c10d.ProcessGroup, params: collections.abc.Sequence[torch.Tensor]) -> None

Invoked with: -100, [Parameter containing:
tensor([[-0.0638,  0.1709]], requires_grad=True)], None"""


@pytest.mark.parametrize(
    ("message", "exception", "code", "words"),
    [
        (
            "ProcessGroupGloo::allgather: invalid output tensor list at index 0 (expected length 2, got 1)",
            "RuntimeError",
            "DDP305",
            "length 1, but the group has 2",
        ),
        (
            "ProcessGroupGloo::allgather: invalid tensor size at index 0 (expected (3), got (4))",
            "RuntimeError",
            "DDP303",
            "[4]; [3]",
        ),
        (
            "[rank0]:[F1121 10:12:12.244453741 ProcessGroupGloo.cpp:1537] Check failed: outputShape[0] * worldSize == "
            "inputShape[0] (6 vs. 5).",
            "RuntimeError",
            "DDP303",
            "split evenly",
        ),
        ("Tensor's dim 0 does not divide equally across group size", "RuntimeError", "DDP303", "split evenly"),
        (
            "output tensor size must be equal to world_size times input tensor size",
            "RuntimeError",
            "DDP303",
            "split evenly",
        ),
        ("Split sizes doesn't match total dim 0 size", "RuntimeError", "DDP305", "split sizes"),
        ("Number of tensor splits not equal to group size", "RuntimeError", "DDP305", "split sizes"),
        (
            "Invalid usage of tensors with different dtypesFound torch.float32 and  torch.int64",
            "ValueError",
            "DDP304",
            "torch.float32 and of torch.int64",
        ),
        (
            "Argument ``gather_list`` must NOT be specified on non-destination ranks.",
            "ValueError",
            "DDP305",
            "gather_list",
        ),
        ("Argument ``gather_list`` must be specified on destination rank.", "ValueError", "DDP305", "gather_list"),
        (
            "Argument ``scatter_list`` must NOT be specified on non-source ranks.",
            "ValueError",
            "DDP305",
            "scatter_list",
        ),
        ("ProcessGroupGloo::broadcast: invalid root rank: 5", "RuntimeError", "DDP305", "rank 5"),
        (
            "Global rank 1 is not part of group <torch.distributed.ProcessGroup object at 0x7f>",
            "ValueError",
            "DDP305",
            "rank 1",
        ),
        (
            "Invalid destination rank: destination rank should not be the same as the rank of the current process.",
            "ValueError",
            "DDP307",
            "itself",
        ),
        ("Rank 5 is out of range. Valid ranks are 0 to 1 (world_size=2)", "ValueError", "DDP108", "new_group"),
        ("ranks list must not contain duplicate entries, got [0, 0]", "ValueError", "DDP108", "twice"),
        (
            "The new group's rank should be within the world_size set by init_process_group",
            "ValueError",
            "DDP108",
            "new_group",
        ),
        (VERIFY, "TypeError", "DDP108", "does not belong"),
    ],
)
def test_arguments_that_cannot_be_right(message, exception, code, words):
    found = told(message, exception)
    assert found.code == code
    assert words in found.summary
    assert found.remedy
