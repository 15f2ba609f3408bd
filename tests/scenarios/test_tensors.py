"""A tensor by rank on real ranks: while they hang, while they are held, when one is stopped or dead, and when they are idle."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ddpnb.errors import UsageError, WorldError
from tests.conftest import alive

pytestmark = pytest.mark.world

SCRIPT = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def train(net, rank):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        loss = model(torch.ones(2, 8) * (rank + 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 2:
        with torch.no_grad():
            net[0].weight[3, 5] += 0.25
    grads = {"x": torch.tensor([1.0, float("nan") if rank == 1 else 2.0])}
    if rank == 3:
        return time.sleep(1000)
    dist.all_reduce(torch.ones(1))

dist.init_process_group()
torch.manual_seed(0)
train(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)), dist.get_rank())
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "parted.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.full
def test_a_tensor_of_ranks_that_hang(world, script):
    run = world.run(script, stream=None).wait(60)
    assert run.outcome == "hang"
    with pytest.raises(UsageError, match="there is no variable ned in train.* Did you mean net"):
        world.tensor("ned.weight")
    found = world.tensor("net[0].weight")
    assert found.sides == ((0, 1, 3), (2,)) and all(sum(one.counts) == 32 for one in found.ranks.values())
    (one,) = found.differences
    assert (one.ranks, one.elements, one.compared, one.first) == ((0, 2), 1, 32, (3, 5))
    assert one.largest == pytest.approx(0.25)
    found = world.tensor("0.weight")
    assert found.sides == ((0, 1, 3), (2,)) and {one.step for one in found.ranks.values()} == {3}
    assert world.tensor("0.weight.grad").equal and world.tensor("0.weight.momentum_buffer", None).equal
    assert world.tensor("grads['x']", ranks=[0, 1]).ranks[1].nans == 1
    loss = world.tensor("loss", ranks=(0, 1, 2))
    assert len(loss.sides) == 3 and loss.ranks[0].shape == ()
    assert {"0.weight", "0.weight.grad", "loss", "grads['x']"} <= {*world.tensor_names()}
    world.release()
    assert run.endings[0].how == "raised"


@pytest.mark.full
def test_held_stopped_and_dead_ranks(world, script):
    world.hold("all_reduce", when="'grads' in locals()")
    world.run(script, stream=None)
    deadline = time.monotonic() + 240
    while world.status().held != (0, 1, 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    found = world.tensor("net[0].weight", ranks=[0, 1, 2])
    assert found.sides == ((0, 1), (2,))
    assert [note for note in found.notes if "in progress" in note]
    pid = world.pids()[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        stopped = world.tensor("loss")
        assert stopped.errors[1] == "its process is stopped (SIGSTOP)" and 0 in stopped.ranks
    finally:
        os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    dead = world.tensor("loss")
    assert dead.errors[1] == "its process is dead" and not dead.equal
    with pytest.raises(WorldError, match="rank 1 is dead"):
        world.tensor("loss", ranks=1)
    world.release()
    world.restart()


def test_the_variables_of_cells(world):
    world.execute("import torch, os\nx = torch.full((3,), float(os.environ['RANK']))", stream=None).wait(30)
    found = world.tensor("x[1:]")
    assert len(found.sides) == 4 and found.ranks[2].low == 2.0
    assert {one.where for one in found.ranks.values()} == {"the variables of cells"}
    assert "x" in world.tensor_names()
    world.execute("x += 1; assert x[0] == float(os.environ['RANK']) + 1", stream=None).wait(30)
    assert world.last_run.outcome == "ok"
