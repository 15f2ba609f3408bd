"""The fence in its three positions."""

from __future__ import annotations

import pytest
import torch

from ddpnb.errors import UsageError
from ddpnb.world.run_requests import FENCES


def disagree_quietly(rank_with_max):
    import torch.distributed as dist

    dist.init_process_group("gloo")
    x = torch.ones(4) * (dist.get_rank() + 1)
    dist.all_reduce(x, op=dist.ReduceOp.MAX if dist.get_rank() == rank_with_max else dist.ReduceOp.SUM)
    return float(x[0])


@pytest.mark.world
@pytest.mark.parametrize("fence", FENCES)
def test_reduce_operations_differ(world, fence):
    """Plain PyTorch says nothing here and mixes the numbers."""
    run = world.run(disagree_quietly, 2, stream=None, fence=fence).wait(30)
    assert run.outcome == ("hang" if fence == "raise" else "divergence")
    assert [f.code for f in run.diagnosis.errors] == ["DDP305"]
    assert run.diagnosis.errors[0].culprits == (2,)
    assert run.exit_status == (3 if fence == "raise" else 4)
    assert ("ddpnb: fence" in "".join(run.log(rank) for rank in range(4))) == (fence != "off")


@pytest.mark.full
@pytest.mark.world
def test_without_it_gloo_aborts_and_the_cause_is_still_named(world, victims):
    run = world.run(victims / "mismatch.py", "shape", stream=None, fence="off").wait(30)
    assert run.outcome in ("crash", "hang")
    assert run.diagnosis.errors[0].code == "DDP303"
    assert run.diagnosis.errors[0].culprits == (3,)


@pytest.mark.world
@pytest.mark.parametrize("terms", [{"fence": "of"}, {"fence": ""}, {"patience": 0}, {"patience": "5"}], ids=str)
def test_a_run_that_cannot_be_watched_so_is_refused_before_it_starts(world, terms):
    before = world.last_run, world.fence, world.patience
    with pytest.raises(UsageError):
        world.run(disagree_quietly, 2, stream=None, **terms)
    assert (world.last_run, world.fence, world.patience) == before
