"""Tensors that a program declares the same on several ranks. Real torch; the other rank is imagined."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.models.replicated import Replicated
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events.data import ReplicatedTensor
from tests.recorder.models.test_replicas_models import line_of
from tests.torch_names import needs

pytestmark = [pytest.mark.usefixtures("of_two"), needs("torch.distributed.tensor.DTensor.from_local")]


@pytest.fixture
def box(tmp_path):
    return BlackBox(str(tmp_path / "rank0.box"), 0)


@pytest.fixture
def hooks(box):
    hooks = Replicated(box)
    hooks.install()
    yield hooks
    hooks.remove()


@pytest.fixture
def mesh():
    return init_device_mesh("cpu", (2,))


def recorded(box):
    return [event for event in BoxReader(box.memory).events() if isinstance(event, ReplicatedTensor)]


@pytest.mark.usefixtures("hooks")
def test_what_is_declared_replicated_is_recorded(box, mesh):
    values = torch.arange(6.0).view(2, 3)
    for tensor in (values, values.clone().t().contiguous().t(), values + 1):
        DTensor.from_local(tensor, mesh, [Replicate()])
    DTensor.from_local(values, mesh)
    one, *others = recorded(box)
    assert (one.ranks, one.number, one.shape) == ((0, 1), 1, (2, 3))
    assert one.site.file == __file__
    assert one.site.line == line_of(test_what_is_declared_replicated_is_recorded, "DTensor.from_local")
    assert [other.digest == one.digest for other in others] == [True, False, True]


@pytest.mark.usefixtures("hooks")
def test_what_is_not_declared_so_or_checked_by_torch_is_not(box, mesh):
    DTensor.from_local(torch.ones(2), mesh, [Shard(0)])
    with mesh:
        DTensor.from_local(torch.ones(2))  # of a mesh that is not given nobody says which it is
    DTensor.from_local(torch.ones(2), mesh, [Replicate()], run_check=True)
    DTensor.from_local(torch.empty(0), mesh, [Replicate()])
    DTensor.from_local(torch.ones(2, device="meta"), mesh, [Replicate()])
    assert recorded(box) == []


@pytest.mark.usefixtures("hooks")
def test_the_first_and_then_fewer(box, mesh):
    for _ in range(200):
        DTensor.from_local(torch.ones(2), mesh, [Replicate()])
    assert [event.number for event in recorded(box)] == [1, 2, 3, 4, 8, 16, 32, 64]


def test_it_is_as_it_was_afterwards(box, mesh):
    before = vars(DTensor)["from_local"]
    hooks = Replicated(box)
    hooks.install()
    made = DTensor.from_local(torch.ones(2), mesh, [Replicate()])
    assert made.from_local(torch.ones(2), mesh, [Replicate()]).shape == (2,)  # a static method, also of an object
    hooks.remove()
    assert isinstance(vars(DTensor)["from_local"], staticmethod)
    assert vars(DTensor)["from_local"].__func__ is before.__func__


@pytest.mark.usefixtures("hooks")
def test_the_compiler_passes_it_by(box, mesh):
    torch._dynamo.reset()
    scaled = torch.compile(
        lambda x: DTensor.from_local(x, mesh, [Replicate()]).to_local() * 2, backend="aot_eager", fullgraph=True
    )
    assert scaled(torch.ones(2)).tolist() == [2, 2]
    assert recorded(box) == []
    torch._dynamo.reset()
