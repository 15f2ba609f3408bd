"""Start-up and groups: stores that a script makes itself, groups that torch makes, ranks that meet for RPC."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.distributed.device_mesh import DeviceMesh

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.phases import DEVICE, Phases, device
from ddpnb.recorder.events.hooks import put_in_place
from ddpnb.recorder.events.torch_names import version
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events.startup import InitRpc, NewGroup

SCRIPT = """
import json, os, sys, tempfile
import torch.distributed as dist
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events.startup import StoreMade, StoreOpened
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.phases import Phases

folder = tempfile.mkdtemp()
box = BlackBox(os.path.join(folder, "rank0.box"), 0)
door = Door(box, folder)
door.open()
phases = Phases(box, door)
original = dist.TCPStore.__init__
phases.install()

class Own(dist.TCPStore):
    pass

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
store.set("key", "value")
other = Own("127.0.0.1", store.port, 1, False)
try:
    dist.TCPStore(3)
except TypeError as error:
    print("ddpnb" in str(error), file=sys.stderr)
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
dist.destroy_process_group()
events = BoxReader(box.memory).events()
made = [(e.host, e.port, e.is_master, e.state) for e in events if isinstance(e, StoreMade)]
phases.remove()
print(json.dumps([made, store.port, other.get("key").decode(), sum(isinstance(e, StoreOpened) for e in events) > 0]))
sys.stdout.flush()
os._exit(0)
"""


def test_stores_of_the_script(forked):
    done = forked.run(SCRIPT)
    made, port, value, met = json.loads(done.stdout.splitlines()[-1])
    assert made == [["127.0.0.1", 0, True, "done"], ["127.0.0.1", port, False, "done"], ["3", 0, False, "failed"]]
    assert (value, met) == ("value", True)
    assert "was disabled" not in done.stderr, done.stderr


@pytest.fixture
def phases(tmp_path):
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    found = Phases(box, Door(box, str(tmp_path)))
    put_in_place(found)
    yield found
    found.remove()


def events(phases, kind):
    return [event for event in BoxReader(phases.box.memory).events() if isinstance(event, kind)]


@pytest.mark.usefixtures("of_two")
def test_the_groups_of_a_mesh_are_recorded(phases):
    """``torch.distributed.device_mesh`` imports new_group by name: the ranks of a mesh were made by nobody."""
    DeviceMesh("cpu", torch.tensor([[0], [1]]), mesh_dim_names=("dp", "tp"))
    dist.new_group([0])
    made = [(event.ranks, event.maker) for event in events(phases, NewGroup)]
    of_mesh = [*([(0, 1)] if version() < (2, 10) else []), (0,), (1,)]
    assert made == [*((ranks, "DeviceMesh") for ranks in of_mesh), ((0,), "")]


def test_a_rank_that_waits_for_others_in_init_rpc(phases, monkeypatch):
    def meets(*_args, **_kwargs):
        (event,) = events(phases, InitRpc)
        assert event.state == "open"
        raise RuntimeError("nobody comes")

    monkeypatch.setattr(dist, "rendezvous", meets)
    options = rpc.TensorPipeRpcBackendOptions(init_method="tcp://127.0.0.1:29533")
    with pytest.raises(RuntimeError, match="nobody comes"):
        rpc.init_rpc("worker", rank=0, world_size=2, rpc_backend_options=options)
    (event,) = events(phases, InitRpc)
    assert (event.address, event.rank, event.world_size) == ("tcp://127.0.0.1:29533", 0, 2)
    assert (event.state, event.error) == ("failed", "RuntimeError: nobody comes")


def test_the_device_that_a_script_has_chosen(monkeypatch):
    """Of any kind, also one that is a plug-in; only one that is in use is asked."""
    monkeypatch.setenv(DEVICE, "cpu")
    assert device() == "cpu"
    monkeypatch.setattr(torch.xpu, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.xpu, "current_device", lambda: 2)
    assert device() == "xpu:2"
    monkeypatch.setattr(torch.xpu, "is_initialized", lambda: False)
    npu = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 1)
    monkeypatch.setattr(torch, torch._C._get_privateuse1_backend_name(), npu, raising=False)
    assert device() == "privateuseone:1"
