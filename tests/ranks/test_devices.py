"""The plan of devices, with the number of GPUs given."""

from __future__ import annotations

import pytest

from ddpnb.errors import DeviceError, UsageError
from ddpnb.ranks import machine
from ddpnb.ranks.devices import HostDevices, count_gpus, plan, plan_over, ranks_that_fit
from ddpnb.ranks.environment import torchrun_environment


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


def over(n, *hosts, backend=None):
    return plan_over(n, [HostDevices(*host) for host in hosts], backend)


def test_ranks_are_spread_evenly_over_hosts():
    found = over(5, ("a", 1, 0, False), ("b", 1, 0, False))
    assert (found.hosts, found.backend, set(found.devices)) == (("a", "a", "a", "b", "b"), "gloo", {"cpu"})
    assert found.description == "5 ranks on 2 hosts, gloo, cpu"
    assert [list(found.neighbours(rank)) for rank in (0, 2, 3)] == [[0, 1, 2], [0, 1, 2], [3, 4]]


def test_as_many_ranks_as_engines_are_placed_as_these_are():
    assert over(4, ("a", 3, 0, False), ("b", 1, 0, False)).hosts == ("a", "a", "a", "b")


def test_a_host_without_ranks_is_left_out():
    assert over(1, ("a", 2, 0, False), ("b", 2, 0, False)).hosts == ("a",)


def test_gpus_of_several_hosts():
    found = over(4, ("a", 1, 2, True), ("b", 1, 2, True))
    assert (found.backend, found.devices) == ("nccl", ("cuda:0", "cuda:1", "cuda:0", "cuda:1"))
    assert over(4, ("a", 1, 2, True), ("b", 1, 0, False)).backend == "gloo"
    assert over(4, ("a", 1, 2, True), ("b", 1, 2, True), backend="gloo").devices == ("cpu",) * 4
    with pytest.raises(DeviceError, match="3 ranks do not fit on the 2 GPUs of a"):
        over(6, ("a", 1, 2, True), ("b", 1, 8, True), backend="nccl")
    found = over(2, ("a", 1, 2, True), ("b", 1, 0, False), backend="nccl")
    assert (found.backend, found.warnings) == ("gloo", ("NCCL cannot be used on all hosts: falling back to gloo.",))


def test_the_variables_of_several_hosts():
    found = over(3, ("a", 2, 0, False), ("b", 1, 0, False))
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR")
    shown = [[torchrun_environment(found, rank, 1, "10.0.0.1")[name] for name in names] for rank in range(3)]
    assert shown == [
        ["0", "0", "3", "2", "0", "2", "10.0.0.1"],
        ["1", "1", "3", "2", "0", "2", "10.0.0.1"],
        ["2", "0", "3", "1", "1", "2", "10.0.0.1"],
    ]
