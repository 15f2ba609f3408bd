"""Private names of torch and ipyparallel that we touch: a clear message when they move."""

from __future__ import annotations

import inspect

import torch
import torch.distributed.distributed_c10d as c10d
from ipyparallel import Client
from ipyparallel.cluster.launcher import LocalEngineLauncher
from torch._C._distributed_c10d import ProcessGroup, Work

from ddpnb.engine.signatures import OPS


def test_ipyparallels_control_request():
    assert list(inspect.signature(Client._send_control_request).parameters) == [
        "self", "targets", "msg_type", "content", "block",
    ], "cluster/hotline.py sends on the control channel with this private method"  # fmt: skip
    assert callable(LocalEngineLauncher.start)


def test_the_kernels_control_handlers():
    from ipykernel.kernelbase import Kernel

    assert "control_handlers" in inspect.getsource(Kernel.__init__), "engine/hotline.py registers its handler there"


def test_torchs_dispatcher():
    assert torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
    for name in ("unbox", "wait", "is_completed"):
        assert hasattr(Work, name), f"engine/door.py uses Work.{name}"
    assert hasattr(ProcessGroup, "unbox")


def test_every_operator_of_c10d_is_known():
    """A new operator of torch must be looked at: it would pass the door unseen."""
    names = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::")}
    assert names - {"check_for_nan"} == set(OPS)


def test_arguments_stand_where_the_table_says():
    for name, spec in OPS.items():
        arguments = [a.name for a in getattr(torch.ops.c10d, name).default._schema.arguments]
        assert arguments[spec.group] == "process_group", name
        for position, expected in ((spec.reduce_op, "reduce_op"), (spec.root, "root_rank"), (spec.tag, "tag")):
            assert position is None or arguments[position] == expected, name
        if spec.splits:
            assert [arguments[i] for i in spec.splits] == ["output_split_sizes", "input_split_sizes"]


def test_phases_wrap_names_that_exist():
    for name in ("init_process_group", "new_group", "destroy_process_group", "rendezvous"):
        assert callable(getattr(c10d, name))
    assert hasattr(c10d._world, "group_count"), "engine/phases.py names new groups by it"
