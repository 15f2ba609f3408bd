"""The groups of a rank: those that are written in Python, and their places in a mesh. Real torch; the other ranks are imagined."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from ddpnb.recorder.collectives import groups
from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.groups import Groups
from ddpnb.recorder.collectives.phases import Phases
from ddpnb.recorder.events.hooks import put_in_place
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.calls import Group
from ddpnb.recording.events.runs import DoorDetached
from ddpnb.recording.events.startup import MeshMade

RANK = 3  # of four


@pytest.fixture
def box(tmp_path):
    return BlackBox(str(tmp_path / "rank3.box"), RANK)


@pytest.fixture
def door(box, tmp_path):
    """The door and the phases of rank 3, which is in a group of four."""
    door = Door(box, str(tmp_path))
    door.open()
    phases = Phases(box, door)
    put_in_place(phases)
    dist.init_process_group("fake", rank=RANK, world_size=4, store=FakeStore())
    yield door
    dist.destroy_process_group()
    phases.remove()
    door.close()


def named(door):
    return [str(known.identity) for known in door.groups.known.values()]


def never(*_):
    raise AssertionError("a method of the user's was called")


class Managed(dist.ProcessGroup):
    """As those of torchft: it has no name before it is registered, and a size that waits for other replicas."""

    def __init__(self):
        super().__init__(0, 1)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, _gloo())

    group_name = property(never)
    group_desc = property(never)
    size = rank = getBackendName = _get_backend = __eq__ = __hash__ = never


def _gloo():
    return dist.ProcessGroupGloo(dist.HashStore(), 0, 1)


def test_a_group_in_python_is_not_asked(box, door):
    """It passes the door where it leaves a method to torch; it is one of the other groups, no more."""
    group, x = Managed(), torch.ones(2)
    dist.ProcessGroup.allreduce(group, [x]).wait()
    dist.all_reduce(x)
    assert not door.off and not [event for event in BoxReader(box.memory).events() if isinstance(event, DoorDetached)]
    ours, world = (call.group for call in BoxReader(box.memory).calls()[-2:])
    assert (ours.label, ours.ranks, ours.name) == ("Managed", (RANK,), "")
    assert (world.label, world.ranks) == ("default_pg", (0, 1, 2, 3))
    assert door.groups.timeout_s(group) == 1800.0
    door.groups.unhurried(True)
    door.groups.unhurried(False)


@pytest.mark.skipif(not hasattr(dist.ProcessGroup, "reconfigure"), reason="this version of torch cannot do it")
def test_a_group_that_gets_other_members_is_another_one(box, door):
    for _ in range(2):
        dist.all_reduce(torch.ones(2))
        with pytest.raises(RuntimeError):  # the backend of this test cannot do it
            dist._reconfigure(1, ["handle"])
    dist.all_reduce(torch.ones(2))
    calls = BoxReader(box.memory).calls()
    assert [(call.group.ranks, call.seq) for call in calls] == [((0, 1, 2, 3), 1), ((RANK,), 1), ((RANK,), 1)]
    assert len({call.group.key for call in calls}) == 3 and {str(call.group) for call in calls} == {"default_pg"}


def test_of_a_group_that_torch_does_not_know_only_this_rank_is_known(box, door):
    """Its members may be of another world, as those of torchft and vLLM: who they are is no matter of their number."""
    for group in (dist.ProcessGroup(dist.HashStore(), 1, 2), dist.ProcessGroup(dist.HashStore(), 3, 4)):
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        fake = dist.group.WORLD._get_backend(torch.device("cpu"))
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, fake)
        group.send([torch.ones(2)], 0, 0)
        group.allreduce([torch.ones(2)])
    calls = BoxReader(box.memory).calls()
    assert {(str(call.group), call.group.ranks) for call in calls} == {("ProcessGroup", (RANK,))}
    assert len({call.group.key for call in calls}) == 2
    assert [call.title for call in calls[:2]] == ["send to an unknown rank", "all_reduce #1"]


def test_a_group_of_which_nothing_can_be_read(door):
    class Silent(dist.ProcessGroup):
        getSize = getRank = never

    known = door.groups.get(Silent(3, 4))
    assert (known.identity.ranks, known.board) == ((RANK,), None)


def test_a_group_in_python_that_torch_makes_has_its_name_and_members(door):
    """As `register()` of torchft: a backend whose groups are this one."""

    class Registered(dist.ProcessGroup):
        def getBackendName(self):
            return "managed"

        def _set_group_name(self, name):
            """The property of torch raises from then on."""

    group = Registered(0, 1)
    dist.Backend.register_backend("managed", lambda *_: group, devices=["cpu"])
    try:
        assert dist.new_group([RANK], backend="managed", group_desc="replicas") is group
        identity = door.groups.get(group).identity
        assert (identity.ranks, identity.name) == ((RANK,), dist.distributed_c10d._world.pg_names[group])
    finally:
        dist.Backend.backend_list.remove("managed")


def test_the_groups_of_a_mesh_are_named_by_axis_and_coordinate(box, door):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert named(door) == ["default_pg", "mesh_dp (tp=1)", "mesh_tp (dp=1)"]
    dist.all_reduce(torch.ones(2), group=mesh.get_group("tp"))
    group = BoxReader(box.memory).calls()[-1].group
    assert (group.axes, group.at, group.ranks) == ("tp", "dp=1", (2, 3))
    assert [event.place for event in BoxReader(box.memory).events() if isinstance(event, MeshMade)] == ["dp=1, tp=1"]


def test_slices_of_a_mesh_are_no_other_meshes(box, door):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for _ in range(3):
        assert mesh["tp"].size() == mesh["dp"].size() == 2
    assert named(door)[1:] == ["mesh_dp (tp=1)", "mesh_tp (dp=1)"]
    assert len([event for event in BoxReader(box.memory).events() if isinstance(event, MeshMade)]) == 3


def test_groups_that_are_made_apart_from_a_mesh_have_their_place_too(door):
    """Before it or after it, with a name of their own or without."""
    before = dist.new_group([2, 3])
    init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    after = dist.new_group([1, 3], group_desc="DATA_PARALLEL_GROUP"), dist.new_group([0, 3])
    found = [str(door.groups.get(group).identity) for group in (before, *after)]
    assert found == ["group [2, 3] (tp at dp=1)", "DATA_PARALLEL_GROUP (dp at tp=1)", "group [0, 3]"]


def test_a_flattened_mesh(door):
    mesh = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("dp", "cp", "tp"))
    mesh["dp", "cp"]._flatten("dp_cp")
    assert named(door)[-1] == "mesh_dp_cp (dp at tp=1)"


def test_a_mesh_without_names_and_the_default_group(box, door):
    init_device_mesh("cpu", (2, 2))
    init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    assert named(door) == ["default_pg", "mesh_dim_0", "mesh_dim_1"]
    assert [event.names for event in BoxReader(box.memory).events() if isinstance(event, MeshMade)] == [("dp",)]


def test_a_mesh_that_cannot_be_read_costs_only_its_names(door, monkeypatch, capsys):
    monkeypatch.setattr(Groups, "meets", never)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert mesh.size() == 4 and named(door)[-1] == "mesh_tp" and "ddpnb" not in capsys.readouterr().err


def test_the_devices_of_a_group_are_those_of_its_backends(door):
    assert [device for device, _ in groups.backends(dist.new_group([RANK]))][0] == "cpu"
    assert [device for device, _ in groups.backends(Managed())] == ["cpu"]


def test_a_group_is_written_and_read_with_its_place():
    group = Group((2, 3), label="mesh_tp", axes="tp", at="dp=1")
    read = Group.from_json(group.to_json())
    assert (read.axes, read.at, str(read), read.title) == ("tp", "dp=1", "mesh_tp (dp=1)", "mesh_tp")
    assert "axes" not in Group((2, 3)).to_json()
    assert Group.from_json({"ranks": [0], "axes": "\x1b[1m", "at": 7}).axes.isprintable()
