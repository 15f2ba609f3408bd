"""The plan of devices, with the number of GPUs given."""

from __future__ import annotations

import pytest

from ddpnb.errors import DeviceError, UsageError
from ddpnb.processes import machine
from ddpnb.processes.devices import count_gpus, plan, ranks_that_fit


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    """Where there are GPUs, the tests run with DDP_BACKEND=gloo."""
    monkeypatch.delenv("DDP_BACKEND", raising=False)


def planned(n, backend=None, devices=None, *, gpus=0, nccl=True):
    return plan(n, backend, devices, gpus=lambda: gpus, nccl=lambda: nccl, room=lambda: (64, "2 cores"))


def test_cpu():
    found = planned(3)
    assert (found.backend, found.devices, found.warnings) == ("gloo", ("cpu",) * 3, ())


def test_one_rank_per_gpu():
    found = planned(2, gpus=4)
    assert (found.backend, found.devices, dict(found.environment)) == ("nccl", ("cuda:0", "cuda:1"), {})


def test_more_ranks_than_gpus_is_a_choice_for_the_user():
    with pytest.raises(DeviceError, match='backend="gloo"'):
        planned(3, gpus=2)
    assert planned(3, "gloo", gpus=2).devices == ("cpu",) * 3


def test_chosen_devices(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = planned(2, devices=[3, 1], gpus=4)
    assert dict(found.environment) == {"CUDA_VISIBLE_DEVICES": "3,1"}
    assert found.devices == ("cuda:0", "cuda:1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d")
    assert dict(planned(2, devices=[3, 1], gpus=4).environment) == {"CUDA_VISIBLE_DEVICES": "GPU-d,GPU-b"}
    with pytest.raises(DeviceError, match="no CUDA device 7"):
        planned(1, devices=[7], gpus=4)
    with pytest.raises(DeviceError):
        planned(1, devices=[0], gpus=0)


def test_fallbacks_are_said():
    assert "falling back to gloo" in planned(2, "nccl").warnings[0]
    assert planned(2, gpus=2, nccl=False).backend == "gloo"
    assert "without NCCL" in planned(2, gpus=2, nccl=False).warnings[0]


def test_the_environment_decides_unless_an_argument_does(monkeypatch):
    monkeypatch.setenv("DDP_BACKEND", "gloo")
    assert planned(4, gpus=2).backend == "gloo"
    assert planned(2, "nccl", gpus=2).backend == "nccl"
    monkeypatch.setenv("DDP_BACKEND", "ucc")
    with pytest.raises(UsageError, match="unknown backend"):
        planned(1)


@pytest.mark.parametrize("n", [0, -3, True, 2.0, "2", None])
def test_numbers_of_ranks(n):
    with pytest.raises(UsageError):
        planned(n)


@pytest.mark.gpu
def test_gpus_are_counted():
    torch = pytest.importorskip("torch")
    assert count_gpus() == torch.cuda.device_count()


def test_more_ranks_than_the_machine_has_room_for_are_refused_before_anything_is_made():
    with pytest.raises(
        UsageError, match=r"99999999 ranks do not fit on this machine: 2 cores(.|\n)*Use at most 64 ranks"
    ):
        plan(99_999_999, "gloo", room=lambda: (64, "2 cores"), gpus=lambda: 1 / 0)


@pytest.mark.parametrize(
    ("cores", "available", "most"),
    [(2.0, 24 << 30, 128), (0.5, 24 << 30, 32), (64.0, 18 << 30, 102), (2.0, 0, 2), (2.0, None, 128)],
)
def test_room_is_by_memory_and_by_cores(monkeypatch, cores, available, most):
    monkeypatch.setattr(machine, "cores", lambda: cores)
    monkeypatch.setattr(machine, "facts", lambda: {} if available is None else {"memory_available": available})
    found, why = ranks_that_fit()
    assert found == most
    assert ("memory" in why) == (available is not None and available >> 20 < 180 * 64 * cores)


@pytest.mark.parametrize("n", [True, 2.0, "2", None, 0, -1])
def test_a_number_of_ranks_is_a_whole_number(n):
    with pytest.raises(UsageError, match="at least one rank"):
        planned(n)
