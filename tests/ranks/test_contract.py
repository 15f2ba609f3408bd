"""What of torch and ipyparallel we rely on beside names: a clear message when it changes."""

from __future__ import annotations

import inspect
import threading
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.distributed.distributed_c10d as c10d
from ipyparallel import Client, serialize
from ipyparallel.client import client
from ipyparallel.controller import app, heartmonitor
from torch._C._distributed_c10d import Backend, Work
from torch.distributed import TCPStore
from torch.nn.parallel import DistributedDataParallel

from ddpnb.ranks.engines.replying import in_json
from ddpnb.recorder.collectives.signatures import OPS
from ddpnb.recording.calls import OPERATIONS


def test_ipyparallels_control_request():
    assert list(inspect.signature(Client._send_control_request).parameters) == [
        "self", "targets", "msg_type", "content", "block",
    ], "processes/engines/client.py sends on the control channel with this private method"  # fmt: skip
    assert Client._closed is False, "processes/engines/client.py sees by it that a client is closed"


def test_ipyparallels_replies():
    """processes/engines/client.py keeps the bytes of what these two would unpickle, engines/replying.py hands over bytes."""
    source = inspect.getsource(client)
    assert source.count("serialize.deserialize_object(") == 4, "ipyparallel unpickles at another place too"
    for method, count in ((Client._handle_apply_reply, 2), (Client._dispatch_iopub, 1), (Client.result_status, 1)):
        assert inspect.getsource(method).count("serialize.deserialize_object(") == count, method
    assert serialize.serialize_object(in_json(dict, [("a", "\ud800")])) == [b'{"a": "\\ud800"}']


def test_ipyparallels_heart_monitor_is_made_as_a_process():
    source = inspect.getsource(app.IPController)
    assert "self.heartmonitor_process = Process(" in source, "processes/engines/child.py makes it a thread by this name"
    assert source.count(" = Process(") == 3, (
        "processes/engines/child.py: the others are made where mq_class is of processes"
    )


def test_ipyparallels_heart_monitor_and_hub():
    """processes/engines/controller.py overrides these methods."""
    source = inspect.getsource(heartmonitor.HeartMonitor.beat)
    assert "new_hearts = self.responses.difference(good_hearts)" in source
    assert "self.caller = ioloop.PeriodicCallback(self.beat, self.period)" in inspect.getsource(
        heartmonitor.HeartMonitor.start
    )
    assert " = HeartMonitor(" in inspect.getsource(heartmonitor._setup_heartmonitor)
    assert "self.hub = Hub(" in inspect.getsource(app.IPController)
    assert "self.incoming_registrations[heart] = " in inspect.getsource(app.Hub.register_engine)
    assert "self.incoming_registrations.pop(heart)" in inspect.getsource(app.Hub.finish_registration)


def test_what_ipyparallel_imports():
    """processes/engines/engine.py keeps an engine and a controller from importing what they do not use."""
    source = Path(find_spec("ipyparallel").origin).read_text()
    lines = [line.split("#")[0].strip() for line in source.splitlines() if "from .cluster" in line]
    assert lines == [f"from .cluster import {name}" for name in ("Cluster", "ClusterManager")]
    scheduler = Path(find_spec("ipyparallel.controller.task_scheduler").origin).read_text()
    assert "    import numpy\nexcept ImportError:\n    numpy = None" in scheduler


def test_an_engine_has_no_channel_for_a_debugger():
    """processes/engines/engine.py keeps ipykernel from importing one."""
    from ipyparallel.engine.app import IPEngine

    debugger = Path(find_spec("ipykernel.debugger").origin).read_text()  # to import it changes the environment
    assert "except ImportError:\n    _is_debugpy_available = False" in debugger
    assert "debugpy_stream" not in inspect.getsource(IPEngine), "it has one now"


def test_the_name_of_a_notebooks_cell():
    from IPython.core.compilerop import CachingCompiler

    compiler = CachingCompiler()
    name = compiler.cache("x = 1", 3)
    assert compiler.format_code_name(name) == ("Cell", "In[3]"), "orders.py names the functions of a notebook by it"


def test_what_a_widget_says_is_heard_while_a_cell_runs():
    from ipykernel.comm.comm import BaseComm

    assert "subshell" in inspect.getsource(BaseComm), "widgets/view.py takes _reply_subshell_for away from its comms"


def test_arguments_stand_where_the_table_says():
    for name, spec in OPS.items():
        if not hasattr(torch.ops.c10d, name):  # of a later torch
            continue
        arguments = [a.name for a in getattr(torch.ops.c10d, name).default._schema.arguments]
        assert arguments[spec.group] == "process_group", name
        for position, expected in ((spec.reduce_op, "reduce_op"), (spec.root, "root_rank"), (spec.tag, "tag")):
            assert position is None or arguments[position] == expected, name
        if spec.splits:
            assert [arguments[i] for i in spec.splits] == ["output_split_sizes", "input_split_sizes"]


def test_operations_have_the_names_that_a_user_gives():
    assert set(OPERATIONS) == {spec.name for spec in OPS.values()}


def test_groups_time_outs_can_be_suspended(tmp_path):
    """recorder/collectives/groups.py reads and sets the time-out of a backend."""
    c10d.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        backend = c10d.group.WORLD._get_backend(torch.device("cpu"))
        before = backend.options._timeout
        backend._set_default_timeout(timedelta(days=7))
        assert backend.options._timeout == timedelta(days=7) != before
        del backend
    finally:
        c10d.destroy_process_group()


def test_groups_of_nccl_can_be_aborted_together():
    """recorder/holds/release.py aborts the backends of all groups that are in torch's table, as torch does it."""
    assert hasattr(Backend, "abort")
    source = inspect.getsource(c10d._abort_process_group)
    assert "pg_to_abort.abort()" in source
    assert "backend._group_start()" in source or "_coalescing_manager(pg" in source  # until 2.13; from 2.14 on


def test_a_wrapper_can_be_made_anew():
    """recorder/collectives/rebind.py gives a wrapper to another group by these."""
    source = inspect.getsource(DistributedDataParallel.__setstate__)
    assert "_get_default_group" in source and "_ddp_init_helper" in source


def test_what_a_look_reads():
    """recorder/stacks/values.py reads tensors without the functions of their classes, recorder/channel/threads.py names of threads."""
    with torch._C.DisableTorchFunctionSubclass():
        assert torch.Tensor.shape.__get__(torch.ones(2)) == (2,)
    active = threading._active
    assert object.__getattribute__(active[threading.get_ident()], "_name") == threading.current_thread().name


def test_works_of_our_own():
    """recorder/faults makes a work that is complete, for a call that is skipped."""
    future = torch.futures.Future()
    future.set_result([torch.ones(1)])
    work = torch._C._distributed_c10d._create_work_from_future(future)
    assert work.is_completed() and Work.unbox(work.boxed()).is_completed()


def test_the_store_listens_on_all_interfaces():
    """Whatever address it is given: README and SECURITY.md say so."""
    store = TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
    listening = {
        fields[1].rpartition(":")[0]
        for name in ("tcp", "tcp6")
        for fields in map(str.split, Path(f"/proc/net/{name}").read_text().splitlines()[1:])
        if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == store.port
    }
    assert listening and {digit for address in listening for digit in address} == {"0"}
