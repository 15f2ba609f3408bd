"""Losses on a GPU: recorded without waiting, in one process."""

from __future__ import annotations

import time

import pytest
import torch

from ddpnb.recorder.models.device_losses import DeviceLosses
from tests.gpu import DEVICE, KIND
from tests.gpu.test_tensors import BUSY_S, busy, still_busy  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]


def test_a_loss_is_known_when_the_device_has_computed_it(busy):  # noqa: F811
    losses, found = DeviceLosses(KIND), []
    losses.take(torch.tensor(1.0, device=DEVICE), found.append)  # allocates the memory of the copies
    torch.cuda.synchronize()
    losses.poll()
    busy()
    loss = torch.full((), 0.5, device=DEVICE) * 3
    torch.cuda.set_sync_debug_mode("error")  # torch raises where it would wait for the device
    try:
        began = time.monotonic()
        losses.take(loss, found.append)
        losses.poll()
        took = time.monotonic() - began
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert found == [1.0] and took < BUSY_S / 2 and still_busy()
    loss.zero_()  # behind the copy
    torch.cuda.synchronize()
    losses.poll()
    assert found == [1.0, 1.5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types(dtype):
    losses, found = DeviceLosses(KIND), []
    losses.take(torch.full((1,), 0.75, dtype=dtype, device=DEVICE), found.append)
    torch.cuda.synchronize()
    losses.poll()
    assert found == [0.75]


def test_nothing_becomes_a_part_of_a_graph_that_is_captured():
    losses, found = DeviceLosses(KIND), []
    x = torch.ones(4, device=DEVICE)
    losses.take(x.mean(), found.append)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x * 2).mean()
        losses.take(y, found.append)
        losses.poll()
    graph.replay()
    torch.cuda.synchronize()
    losses.poll()
    assert found == [1.0] and y.item() == 2.0


def test_a_loss_of_a_wrapped_model_is_a_sample_of_its_backward(alone, watched):
    watched.replicas._losses = DeviceLosses(KIND)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1).to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    values = []
    for _ in range(3):
        loss = model(torch.ones(2, 4, device=DEVICE)).square().mean()
        values.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    watched.replicas.finish()
    samples = watched.samples("loss")
    assert [(one.turn, one.step, one.facts["loss"]) for one in samples] == [
        (turn + 1, turn, pytest.approx(value)) for turn, value in enumerate(values)
    ]
    backwards = watched.samples("backward")
    assert [one.turn for one in backwards] == [1, 2, 3] and (
        KIND == "cpu" or all("loss" not in one.facts for one in backwards)
    )
    assert {one.site.line for one in samples} == {one.site.line for one in backwards}
