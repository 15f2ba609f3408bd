"""Tensors on a GPU: their digests, their values, and that nothing which looks at them waits for the device."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch

from ddpnb.recorder.collectives.signatures import OPS, Signatures
from ddpnb.recorder.events.inputs import describe
from ddpnb.recorder.models import device_copies
from ddpnb.recorder.models.tensor_values import Reading
from ddpnb.recorder.models.tracked_model import Watched, specs
from ddpnb.recorder.stacks.digests import Digester, exact
from ddpnb.recorder.stacks.evaluation import evaluate
from tests.gpu import DEVICE, KIND

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]
BUSY_S = 3.0


def made():
    """One tensor of each kind, on the CPU."""
    generator = torch.Generator().manual_seed(1)
    base = torch.randn(300, 70, generator=generator)
    return {
        "float32": base,
        "float64": base.double(),
        "float16": base.half(),
        "bfloat16": base.bfloat16(),
        "int64": torch.arange(999),
        "bool": base > 0,
        "complex64": torch.complex(base, base + 1),
        "transposed": base.t(),
        "strided": base[::3, 5:41],
        "scalar": torch.tensor(2.5),
        "not finite": torch.tensor([1.0, math.nan, math.inf, -2.0]),
        "large": torch.randn(700, 800, generator=generator),
    }


def on_device(tensor):
    """The same tensor on the device, with the same strides."""
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE)
    return copy.copy_(tensor)


@pytest.fixture
def busy():
    """A kernel on the stream of the tests that runs for some seconds; calls of torch that need its results wait for it."""
    if KIND != "cuda":
        yield lambda: None
        return
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.cuda._sleep(100_000_000)  # clock cycles
    end.record()
    torch.cuda.synchronize()
    per_second = 100_000_000 / (begin.elapsed_time(end) / 1000)
    yield lambda: torch.cuda._sleep(int(per_second * BUSY_S))
    torch.cuda.synchronize()


def still_busy():
    return KIND != "cuda" or not torch.cuda.current_stream().query()


@pytest.mark.parametrize("name", made())
def test_digests_are_those_of_the_same_bytes_on_the_cpu(name):
    tensor = made()[name]
    there = on_device(tensor)
    assert there.device.type == KIND and there.stride() == tensor.stride()
    assert exact(there) == exact(tensor)
    digesters = [Digester(specs([(name, one)], [])) for one in (tensor, there)]
    (hashes, norms), (hashes_there, norms_there) = (
        digester.digest([one], 0, 0) for digester, one in zip(digesters, (tensor, there), strict=True)
    )
    assert hashes == hashes_there and any(hashes)
    np.testing.assert_allclose(np.frombuffer(norms_there, "f"), np.frombuffer(norms, "f"), rtol=1e-5)


@pytest.mark.parametrize("name", made())
def test_values_in_numbers_are_those_of_the_cpu(name):
    tensor = made()[name]
    facts, there = (Reading(one, time.monotonic() + 60).facts() for one in (tensor, on_device(tensor)))
    assert facts.pop("digests") == there.pop("digests")
    assert facts == pytest.approx(there, nan_ok=True)
    low, high = (facts["low"], facts["high"]) if facts["low"] is not None else (0.0, 1.0)
    counts = [Reading(one, time.monotonic() + 60).counts(low, high, 12) for one in (tensor, on_device(tensor))]
    assert counts[0] == counts[1] and sum(counts[0])


def test_a_model_is_compared_with_the_digests_of_the_cpu():
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4))
    here = Watched(0, ([*net.named_parameters()], [*net.named_buffers()])).exact()
    net.to(DEVICE)
    there = Watched(0, ([*net.named_parameters()], [*net.named_buffers()])).exact()
    assert {name: digest for name, digest, _ in there["tensors"]} == {n: digest for n, digest, _ in here["tensors"]}
    assert len(there["tensors"]) == 7


def test_a_model_is_read_while_its_device_hangs(busy, monkeypatch):
    """What is behind the kernel in the stream has not happened; what was before has, and is read."""
    net = torch.nn.Linear(8, 4)
    net.to(DEVICE)
    before = Watched(0, ([*net.named_parameters()], [])).exact()["tensors"]
    monkeypatch.setattr("ddpnb.recorder.models.tracked_model._IN_ORDER_S", 0.2)
    busy()
    began = time.monotonic()
    if KIND == "cuda":
        net.weight.data.add_(1)
    found = Watched(0, ([*net.named_parameters()], [])).exact()["tensors"]
    assert still_busy() and time.monotonic() - began < BUSY_S / 2
    assert [one[:2] for one in found] == [one[:2] for one in before]


def test_values_are_read_while_a_kernel_runs(busy):
    tensor = torch.arange(1000, dtype=torch.float32, device=DEVICE)
    strided = tensor.view(10, 100).t()
    Reading(tensor, time.monotonic() + 60).facts()  # makes the stream
    busy()
    for one in (tensor, strided):
        facts = Reading(one, time.monotonic() + 60).facts()
        assert (facts["low"], facts["high"], facts["looked_at"]) == (0.0, 999.0, 1000)
    assert still_busy()


def test_a_copy_waits_for_no_other_stream(busy):
    tensor = torch.ones(1000, device=DEVICE)
    device_copies.to_host(tensor)
    busy()
    assert not device_copies.in_order([tensor], 0.1) or KIND != "cuda"
    assert device_copies.to_host(tensor).sum() == 1000
    assert still_busy()


def test_what_is_shown_of_a_variable_does_not_wait(busy):
    tensor = torch.full((3,), 7.0, device=DEVICE)
    busy()
    found = evaluate("tensor", 0, 5.0, {})
    _, hash_, finite, _ = describe([tensor], {})
    assert still_busy()
    if KIND == "cuda":
        assert DEVICE in found["text"] and "3" in found["text"]
        assert (hash_, finite) == (0.0, 1.0)  # its values were not looked at


def test_signatures_say_where_tensors_are():
    """NCCL turns an uneven all_gather into broadcasts: there only types must agree."""
    told = []
    spec = OPS["allgather_"]
    read = Signatures(lambda value: len(told.append(value) or told)).reader(spec)
    arguments = [None] * 8
    found = []
    for size in (4, 5):
        arguments[spec.tensors] = [torch.ones(size, device=DEVICE)]
        found.append(read(arguments))
    assert [one["device"] for one in told] == [KIND, KIND] and told[1]["shapes"] == [[5]]
    assert [on_cpu for _, _, on_cpu in found] == [KIND == "cpu"] * 2
    assert (told[0]["agreed"] == told[1]["agreed"]) is (KIND == "cuda")
