"""Losses on a device, with one in place of a GPU whose copies are complete when the test says so."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ddpnb.recorder.models.device_losses import DeviceLosses


class Device:
    """Stands for ``torch.cuda``: the tensors lie on the CPU."""

    def __init__(self):
        self.done = 0  # events that are complete
        self.events = 0
        self.capturing = False

    def current_device(self):
        return None  # the index of the CPU's tensors

    def is_current_stream_capturing(self):
        return self.capturing

    def Event(self):  # noqa: N802 (torch's name)
        return Event(self)


class Event:
    def __init__(self, device):
        self.device = device

    def record(self):
        self.device.events += 1
        self.number = self.device.events

    def query(self):
        return self.number <= self.device.done


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def losses(device, monkeypatch):
    monkeypatch.setattr(DeviceLosses, "_allocated", lambda _: torch.zeros(256, dtype=torch.uint8))
    return DeviceLosses("cpu", device)


def test_values_come_when_the_copies_are_complete_and_in_their_order(losses, device):
    found = []
    for value in (1.5, math.nan, -2.0):
        losses.take(torch.tensor(value, requires_grad=True), found.append)
    losses.poll()
    assert found == []
    device.done = 1
    losses.poll()
    assert found == [1.5]
    device.done = 3
    losses.poll()
    assert found[2] == -2.0 and math.isnan(found[1])


def test_the_value_is_that_of_the_backward_pass(losses, device):
    found, loss = [], torch.tensor(3.0)
    losses.take(loss, found.append)
    loss.zero_()  # by the script, later on the same stream
    device.done = 1
    losses.poll()
    assert found == [3.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types(losses, device, dtype):
    found = []
    losses.take(torch.full((1, 1), 0.75, dtype=dtype), found.append)
    device.done = 1
    losses.poll()
    assert found == [0.75]


@pytest.mark.parametrize(
    "loss",
    [
        torch.ones(2),
        torch.tensor(1),
        torch.tensor(1j),
        torch.tensor(1.0, device="meta"),
        torch.ones(1).to_sparse(),
        torch.tensor(1j).conj().imag,  # its sign would be changed on the host, before the copy is there
        2.0,
        None,
    ],
)
def test_what_is_no_number_on_the_device_is_left_alone(losses, device, loss):
    losses.take(loss, None)
    assert device.events == 0


def test_nothing_becomes_a_part_of_a_graph_that_is_captured(losses, device):
    found = []
    losses.take(torch.tensor(1.0), found.append)
    device.done, device.capturing = 2, True
    losses.take(torch.tensor(2.0), found.append)
    losses.poll()
    assert (found, device.events) == ([], 1)
    device.capturing = False
    losses.poll()
    assert found == [1.0]


def test_no_more_are_on_their_way_than_there_is_room_for(losses, device):
    found = []
    for value in range(40):
        losses.take(torch.tensor(float(value)), found.append)
    assert device.events == 32
    device.done = 1000
    losses.poll()
    assert found == list(map(float, range(32)))
    losses.take(torch.tensor(99.0), found.append)
    losses.poll()
    assert found[-1] == 99.0


def test_those_of_the_run_before_are_forgotten(losses, device):
    found = []
    losses.take(torch.tensor(1.0), found.append)
    losses.forget()
    device.done = 9
    losses.take(torch.tensor(2.0), found.append)
    losses.poll()
    assert found == [2.0]


def test_the_loss_of_a_wrapped_model_is_a_sample_of_its_backward(alone, watched, losses, device):
    """With the turn, step, place and time of the backward, whenever the value comes."""
    watched.replicas._losses = losses
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    values = []
    for step in range(3):
        loss = model(torch.ones(2, 4)).square().mean()
        values.append(loss.item())
        loss.backward()
        optimizer.step()
        device.done = step  # that of this step is not there yet
    assert [one.turn for one in watched.samples("loss")] == [1]  # polled in the next backward
    device.done = 3
    watched.replicas.finish()
    samples, backwards = watched.samples("loss"), watched.samples("backward")
    assert [(one.turn, one.step) for one in samples] == [(1, 0), (2, 1), (3, 2)]
    assert [one.facts["loss"] for one in samples] == pytest.approx(values)
    assert [one.site for one in samples] == [one.site for one in backwards]
    assert all(0 <= one.at_ns - other.at_ns < 1e9 for one, other in zip(samples, backwards, strict=True))
    assert samples[1].at_ns < backwards[2].at_ns
