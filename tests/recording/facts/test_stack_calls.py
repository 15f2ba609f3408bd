"""What a stack alone shows."""

from __future__ import annotations

import pytest

from ddpnb.recording.facts.stack_calls import BACKWARD, CONSTRUCTION, FORWARD, call_in, may_wait_for_work
from ddpnb.recording.stacks import Frame, Stack

TORCH = "/venv/lib/python3.12/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"
LOGGER = f"{TORCH}/distributed/c10d_logger.py"
DDP = f"{TORCH}/nn/parallel/distributed.py"


def stack(*frames, user=("/home/user/train.py", 12, "main")):
    inside = tuple(Frame(file, 1, function, user=False) for file, function in frames)
    return Stack("MainThread", (*([Frame(*user)] if user else []), *inside), main=True)


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        ([(LOGGER, "_exception_logger.<locals>.wrapper"), (C10D, "all_reduce")], "all_reduce"),
        ([(LOGGER, "wrapper"), (C10D, "all_gather_object"), (LOGGER, "wrapper"), (C10D, "all_gather")], "all_gather_object"),
        (
            [(LOGGER, "wrapper"), (C10D, "init_process_group"), (f"{TORCH}/distributed/rendezvous.py", "_env_rendezvous_handler")],
            "init_process_group",
        ),
        ([(C10D, "_store_based_barrier")], "store_based_barrier (torch/distributed/distributed_c10d.py)"),
        ([("/venv/lib/lightning/strategy.py", "barrier"), (LOGGER, "wrapper"), (C10D, "barrier")], "barrier"),
        ([(f"{TORCH}/_tensor.py", "Tensor.backward"), (f"{TORCH}/autograd/graph.py", "_engine_run_backward")], BACKWARD),
        ([(DDP, "DistributedDataParallel.__init__"), (f"{TORCH}/distributed/utils.py", "_sync_module_states")], CONSTRUCTION),
        ([(DDP, "DistributedDataParallel.forward"), (DDP, "DistributedDataParallel._sync_buffers")], FORWARD),
        ([(f"{TORCH}/distributed/fsdp/_runtime.py", "_unshard")], "unshard (torch/distributed/fsdp/_runtime.py)"),
        # DistributedDataParallel runs the forward of the model: no call of torch.distributed is innermost.
        ([(DDP, "DistributedDataParallel.forward"), (f"{TORCH}/nn/modules/linear.py", "Linear.forward")], ""),
        ([(f"{TORCH}/utils/data/dataloader.py", "__next__"), ("/usr/lib/python3.12/queue.py", "get")], ""),
        ([(f"{TORCH}/distributed/elastic/agent/server/api.py", "run")], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_the_call_that_waits(frames, call):
    assert call_in(stack(*frames)) == call


def test_without_a_frame_of_the_user_or_without_a_stack():
    assert call_in(stack((C10D, "barrier"), user=None)) == "barrier"
    assert call_in(None) == call_in(Stack("MainThread", ())) == ""


def test_a_wait_of_a_work_leaves_no_frame():
    assert may_wait_for_work(stack(), "    work.wait()")
    assert not may_wait_for_work(stack(), "    loss.backward()")
    assert not may_wait_for_work(stack(("/usr/lib/python3.12/threading.py", "wait")), "    event.wait()")
    assert not may_wait_for_work(None, "    work.wait()")
