"""Reads in threads of their own: one that never ends blocks nobody."""

from __future__ import annotations

import threading

import torch

from ddpnb.recorder.models import device_copies
from ddpnb.recorder.models.device_reads import DeviceReads


def test_what_a_read_returns_and_raises():
    reads = DeviceReads("test")
    assert reads.answer(lambda: {"value": 1}, 10) == {"value": 1}
    assert reads.answer(lambda: {}["x"], 10) == {"error": "KeyError: 'x'"}


def test_one_that_does_not_end_stops_later_ones_until_it_does():
    reads, freed = DeviceReads("test"), threading.Event()
    assert "the device gave no values within 0.05 s" in reads.answer(lambda: {"late": freed.wait(20)}, 0.05)["error"]
    assert "an earlier read still waits" in reads.answer(dict, 10)["error"]
    freed.set()
    reads.stuck.join(10)
    assert reads.answer(lambda: {"value": 2}, 10) == {"value": 2}


def test_tensors_of_the_cpu_are_where_they_are():
    tensor = torch.ones(3, 2).t()
    assert device_copies.to_host(tensor) is tensor
    assert device_copies.in_order([tensor], 0.0)
