"""What the driver says of the GPUs of this machine."""

from __future__ import annotations

import time

import pytest
import torch

from ddpnb.ranks import gpus
from ddpnb.ranks.devices import count_gpus, plan
from ddpnb.recorder.collectives import phases
from ddpnb.recorder.process import measuring
from ddpnb.world.host import gpus as doctor
from tests.gpu import DEVICE

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]
MIB = 1 << 20


def until_known(device, visible=None, least=0):
    """The usage once it is known and at least so much memory is in use."""
    deadline = time.monotonic() + 30
    while gpus.usage(device, visible).get("device_memory", -1) < least:
        assert time.monotonic() < deadline, gpus.usage(device, visible)
        time.sleep(0.05)
    return gpus.usage(device, visible)


def test_memory_and_utilisation():
    _, total = torch.cuda.mem_get_info(DEVICE)
    before = until_known(DEVICE)
    assert abs(before["device_total"] - total) < total / 10
    assert 0 <= before["device_busy"] <= 1 if "device_busy" in before else True  # MIG tells none
    held = torch.empty(512 * MIB, dtype=torch.uint8, device=DEVICE)
    used = until_known(DEVICE, least=before["device_memory"] + 400 * MIB)
    assert used["device_memory"] <= used["device_total"]
    del held
    torch.cuda.empty_cache()


def test_devices_by_their_uuid():
    until_known(DEVICE)
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    assert gpus.usage("cuda:0", uuid), f"{uuid} is not among {[*gpus._numbers]}"
    assert gpus.usage("cuda:0", uuid)["device_total"] == gpus._known[gpus._numbers[uuid]]["device_total"]
    assert gpus.usage("cuda:1", uuid) == {}


def test_the_plan_uses_what_is_there(monkeypatch):
    monkeypatch.delenv("DDP_BACKEND", raising=False)
    count = count_gpus()
    assert count == torch.cuda.device_count() > 0
    assert (plan(1).backend, plan(1).devices) == ("nccl", ("cuda:0",))
    shared = plan(2, "gloo", [0])
    assert (shared.backend, shared.devices) == ("gloo", ("cuda:0", "cuda:0"))


def test_the_current_device_is_recorded_where_cuda_is_in_use():
    torch.zeros(1, device=DEVICE)
    assert phases.device() == f"cuda:{torch.cuda.current_device()}"


def test_what_the_doctor_is_told():
    driver, *devices = doctor.checks()
    assert driver.name == "driver" and driver.details["driver"] and driver.details["cuda"], driver
    named = [one for one in devices if one.name.startswith("GPU ")]
    assert len([one for one in named if one.details]) >= torch.cuda.device_count(), devices
    assert named[0].details["total"] and named[0].details["name"] in named[0].told


def test_versions_of_this_machine():
    found = measuring.software()
    assert found["devices"] == torch.cuda.device_count() and found["architectures"]
    told = phases.versions()
    assert told["cuda"] == torch.version.cuda and told["nccl"].count(".") >= 1


@pytest.mark.multigpu
def test_which_gpus_reach_each_other():
    told = measuring.peers()
    assert len(told) >= 2
    for one, others in told.items():
        assert others == [n for n in map(int, told) if n != int(one) and torch.cuda.can_device_access_peer(int(one), n)]
    (links,) = [one for one in doctor.checks() if one.name == "links"]
    assert links.state in ("ok", "warning") and links.details, links
