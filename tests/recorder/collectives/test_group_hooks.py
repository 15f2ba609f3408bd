"""The door on torch's own hooks records what the kernels record."""

from __future__ import annotations

import json
import textwrap

import pytest

from ddpnb.recorder.collectives.group_hooks import GroupHooks

pytestmark = pytest.mark.skipif(not GroupHooks.exist(), reason="torch has hooks on process groups from 2.14 on")

# The fake backend is every backend: it refuses nothing and needs no peers.
PREAMBLE = """
import json, os, signal, sys, tempfile, torch, torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.testing._internal.distributed.fake_pg import FakeStore
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.events.hooks import put_in_place
from ddpnb.recorder.collectives.phases import Phases
folder = tempfile.mkdtemp()
box = BlackBox(os.path.join(folder, "rank0.box"), 0)
door = Door(box, folder)
def start(before=False, alone=False):
    if not before:
        door.open()
    put_in_place(Phases(box, door))
    if alone:
        dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=0, world_size=1)
    else:
        dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    if before:
        door.open()
def calls():
    door.flight.poll()
    return [
        [str(call.signature), call.signature.agreed, call.signature.out_shapes, call.signature.in_splits, call.seq,
         call.group.key, call.peer, call.tag, call.site.line, call.site.function, call.state.name]
        for call in BoxReader(box.memory).calls()
    ]
def two(*shape):
    return [torch.ones(shape or 4), torch.ones(shape or 4)]
"""
END = "\nprint(json.dumps([calls(), door.hooks is not None, len(door._libraries)])); sys.stdout.flush(); os._exit(0)\n"

PROGRAMS = {
    "every operator": """
        start()
        x, y = torch.ones(4), torch.ones(8)
        dist.all_reduce(x); dist.all_reduce(x, dist.ReduceOp.MAX); dist.all_reduce(x, op=dist.ReduceOp.AVG)
        dist.all_reduce(x.reshape(2, 2).t()); dist.all_reduce(torch.ones(2, dtype=torch.complex64))
        dist.all_reduce_coalesced(two(), dist.ReduceOp.MIN)
        dist.broadcast(x, 1); dist.reduce(x, 1, dist.ReduceOp.PRODUCT)
        dist.all_gather(two(), x); dist.all_gather_into_tensor(y, x); dist.all_gather_coalesced([[x], [x]], [x])
        dist.gather(x, two(), 0); dist.scatter(x, two(), 0)
        dist.reduce_scatter(x, two(), dist.ReduceOp.MAX); dist.reduce_scatter_tensor(x, y, dist.ReduceOp.AVG)
        dist.all_to_all(two(), two()); dist.all_to_all_single(y, y); dist.all_to_all_single(y, y, [4, 4], [4, 4])
        dist.barrier()
        dist.send(x, 1, tag=7); dist.recv(x, 1, tag=8); dist.isend(x, 1).wait()
        dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, x, 1)])
        dist.all_reduce(x, async_op=True).wait()
        with dist._coalescing_manager(): dist.all_reduce(x, dist.ReduceOp.MAX); dist.all_reduce(y, dist.ReduceOp.MAX)
        with dist._coalescing_manager(): dist.all_gather_into_tensor(y, x)
        with dist._coalescing_manager(): dist.reduce_scatter_tensor(x, y, dist.ReduceOp.AVG)
        with torch.inference_mode(): dist.all_reduce(torch.ones(2))
    """,
    "functional": """
        start()
        x, y, g = torch.ones(4), torch.ones(8), dist.group.WORLD
        funcol.all_reduce(x, "sum", g).add(1); funcol.all_reduce(x, "max", g).add(1)
        [t.add(1) for t in funcol.all_reduce_coalesced(two(), "avg", g)]
        funcol.all_gather_tensor(x, 0, g).add(1)
        [t.add(1) for t in funcol.all_gather_into_tensor_coalesced(two(), g)]
        funcol.reduce_scatter_tensor(y, "avg", 0, g).add(1)
        [t.add(1) for t in funcol.reduce_scatter_tensor_coalesced(two(8), "sum", [0, 0], g)]
        funcol.all_to_all_single(y, [4, 4], [4, 4], g).add(1); funcol.broadcast(x, 1, g).add(1)
        w = torch.ones(4, requires_grad=True)
        funcol.all_gather_tensor_autograd(w, 0, g).sum().backward()
        funcol.reduce_scatter_tensor_autograd(torch.ones(8, requires_grad=True), "sum", 0, g).sum().backward()
    """,
    "groups": """
        start()
        one, pair = dist.new_group([0]), dist.new_group([0, 1], group_desc="pair")
        x = torch.ones(4)
        dist.all_reduce(x, group=one); dist.all_reduce(x, group=pair); dist.barrier(pair)
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
        dist.all_reduce(x, group=mesh["tp"].get_group()); dist.all_reduce(x, group=mesh.get_group("dp"))
        dist.destroy_process_group(pair)
        again = dist.new_group([0, 1]); dist.all_reduce(x, group=again)
    """,
    "groups that were there before": """
        start(before=True)
        x = torch.ones(4)
        dist.all_reduce(x); dist.broadcast(x, 0)
    """,
    "DDP": """
        start(alone=True)
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)))
        dist.monitored_barrier()
        for _ in range(2):
            model(torch.ones(6, 4)).sum().backward()
        with model.no_sync():
            model(torch.ones(6, 4)).sum().backward()
        unused = DDP(torch.nn.Linear(4, 4), find_unused_parameters=True)
        unused(torch.ones(2, 4)).sum().backward()
    """,
    "FSDP2": """
        start()
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.device_mesh import init_device_mesh
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
        mesh = init_device_mesh("cpu", (2,))
        for layer in model: fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        for _ in range(2):
            model(torch.ones(6, 4)).sum().backward()
    """,
    "DTensor": """
        start()
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
        mesh = init_device_mesh("cpu", (2,))
        sharded = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        sharded.full_tensor(); sharded.redistribute(mesh, [Shard(1)]); (sharded.t() @ sharded).full_tensor()
        DTensor.from_local(torch.ones(4), mesh, [Partial("max")]).redistribute(mesh, [Replicate()])
        DTensor.from_local(torch.ones(4), mesh, [Partial()]).redistribute(mesh, [Shard(0)])
    """,
    "compiled": """
        start()
        @torch.compile(backend="aot_eager", fullgraph=True)
        def reduced(x):
            return funcol.all_reduce(x * 2, "max", dist.group.WORLD) + funcol.all_gather_tensor(x, 0, dist.group.WORLD).sum()
        @torch.compile(backend="aot_eager")
        def eager(x):
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
            return x + 1
        for _ in range(2):
            reduced(torch.ones(4)); eager(torch.ones(4))
    """,
}


@pytest.fixture
def both(forked):
    def both(body):
        found = []
        for door in ("hooks", "kernels"):
            text = f"import os; os.environ['DDPNB_DOOR'] = {door!r}\n{PREAMBLE}{textwrap.dedent(body)}{END}"
            done = forked.run(text)
            assert done.returncode == 0, done.stderr
            found.append(json.loads(done.stdout.splitlines()[-1]))
            assert "failed and was disabled" not in done.stderr, done.stderr
        return found

    return both


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name == "compiled")) for name in PROGRAMS]
)
def test_both_doors_record_the_same(both, name):
    (hooks, on_hooks, _), (kernels, on_kernels, _) = both(PROGRAMS[name])
    assert on_hooks and not on_kernels
    assert len(kernels) >= 2
    assert hooks == kernels


def test_a_reduction_that_nothing_says_is_not_guessed(both):
    """The program calls C++ by itself: the next call has a kernel, which sees it."""
    (hooks, _, libraries), (kernels, *_) = both(
        """
        start()
        group = dist.group.WORLD
        dist.all_reduce(torch.ones(1))
        group.allreduce([torch.ones(5)]).wait()
        group.allreduce([torch.ones(5)]).wait()
        dist.all_reduce(torch.ones(1))
    """.replace("group.allreduce", "op = dist.ReduceOp.MAX; group.allreduce", 1)
    )
    assert [call[0] for call in hooks if call not in kernels] == ["all_reduce(float32 [5])"]
    assert libraries == 2


def test_a_backward_of_a_reduction_that_is_no_sum(both):
    """C++ makes it, with the reduction of the forward: a sum is claimed only where all of them are."""
    (hooks, _, libraries), (kernels, *_) = both("""
        start(alone=True)
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = DDP(torch.nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
        funcol.all_reduce(torch.ones(3), "max", dist.group.WORLD).add(1)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
        door.flight.drain(1)
    """)
    assert [call[0] for call in hooks if call not in kernels] == ["all_reduce(float32 [6])"]
    assert libraries == 2


def test_calls_that_are_refused_or_stopped_were_not_made(both):
    """By the backend, and by the hook of another tool; the next call has their number, also where a number is given twice."""
    (hooks, *_), (kernels, *_) = both("""
        start(alone=True)
        group, x = dist.group.WORLD, torch.ones(4)
        def attempt(call):
            try:
                call()
            except Exception:
                return
            raise AssertionError
        attempt(lambda: dist.all_to_all_single(torch.zeros(4), x, [1, 2], [4]))
        attempt(lambda: dist.all_gather([torch.zeros(3)], x))
        attempt(lambda: group.allgather([[torch.zeros(3)]], [x]))
        door.hooks and door.hooks.look()
        dist.all_reduce(x)
        def stops(args):
            raise KeyError("mine")
        if hasattr(group, "register_pre_hook"):
            group.register_pre_hook(5, lambda args: 1 / 0)
            group.register_pre_hook(5, stops)
            attempt(lambda: dist.all_reduce(x))
            group.unregister_pre_hook(5)
        dist.all_reduce(x)
    """)
    seen = [(call[4], call[-1]) for call in hooks]
    assert seen[-2:] == [(1, "COMPLETED"), (2, "COMPLETED")], hooks
    assert {state for _, state in seen[:-2]} == {"REFUSED"}


def test_groups_that_the_program_does_not_destroy(forked):
    """They outlive the interpreter, and so would hooks: that aborted the process at its end."""
    done = forked.run(
        f"{PREAMBLE}start(alone=True)\ndist.all_reduce(torch.ones(4))\nprint(calls()[0][-1], flush=True)\n"
    )
    assert (done.returncode, done.stdout.split()[-1]) == (0, "COMPLETED"), done.stderr


def test_a_group_that_is_gone_takes_its_hooks_with_it(both):
    (hooks, *_), (kernels, *_) = both("""
        import gc, weakref
        start()
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(4), group=group)
        door.flight.poll(); door.flight.pending.clear()
        gone = weakref.ref(group)
        dist.destroy_process_group(group)
        del group
        gc.collect()
        assert gone() is None
        if door.hooks:
            assert len(door.hooks._made) == len(door.hooks._covered) == 1
        dist.all_reduce(torch.ones(2))
    """)
    assert hooks == kernels


def test_faults_have_kernels_while_they_are_armed(both):
    (hooks, _, libraries), (kernels, *_) = both("""
        start()
        from ddpnb.recording.faults import Fault
        from ddpnb.recorder.faults.faults import Faults
        faults, x = Faults(box, door, 0), torch.ones(4)
        dist.all_reduce(x)
        faults.inject(Fault.from_json({"kind": "other shape", "ranks": [0]}), keep=False)
        dist.all_reduce(x)
        faults.heal()
        dist.all_reduce(x)
    """)
    assert hooks == kernels
    assert [call[0] for call in hooks] == [f"all_reduce(float32 [{size}], sum)" for size in (4, 5, 4)]
    assert libraries == 1


def test_a_call_in_a_thread_of_torch_is_not_taken_for_one_that_was_left(both):
    """Autograd calls DDP's reducer in a thread without frames of Python where tensors are on a device."""
    (hooks, *_), _ = both("""
        start(alone=True)
        dist.all_reduce(torch.ones(1))
        if door.hooks:
            (made,) = door.hooks._made
            entry, group = ((0, 99, True), door.groups.get(dist.group.WORLD))
            made[7] = call = entry, group, 2, id(None), -1
            door.hooks.look()
            assert made[7] is call
            made[7] = call = entry, group, 2, 1, 5
            door.hooks.look()
            assert not made
    """)
    assert hooks


def test_a_look_leaves_a_call_alone_that_is_still_being_made(both):
    """As where a backend connects inside of the call: here the hook of another tool waits for the look."""
    (hooks, *_), _ = both("""
        import threading
        start(alone=True)
        group, states = dist.group.WORLD, []
        def looks(_args):
            looking = threading.Thread(target=door.look)
            looking.start()
            looking.join()
            states.append(BoxReader(box.memory).calls()[-1].state.name)
        if door.hooks:
            group.register_post_hook(5, looks)
        dist.all_reduce(torch.ones(1))
        funcol.all_reduce(torch.ones(2), "sum", group).add(1)
        if door.hooks:
            assert states == ["ENTERED", "ENTERED"], states
    """)
    assert [call[-1] for call in hooks] == ["COMPLETED", "COMPLETED"]
    assert [call[4] for call in hooks] == [1, 2]
