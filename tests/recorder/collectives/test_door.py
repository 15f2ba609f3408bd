"""The door on a process group of one, in a process of its own: it changes nothing and gets out of the way."""

from __future__ import annotations

import json
import textwrap
from datetime import timedelta
from types import SimpleNamespace

import pytest

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.waits import asked, watched
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording import blackbox as layout
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.calls import CallState
from ddpnb.recording.events.runs import LateWait

PREAMBLE = """
import os, signal, sys, json, tempfile, torch, torch.distributed as dist
from datetime import timedelta
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.events.hooks import put_in_place
from ddpnb.recorder.collectives.phases import Phases
from ddpnb.recording.blackbox import BoxReader
folder = tempfile.mkdtemp()
box = BlackBox(os.path.join(folder, "rank0.box"), 0)
door = Door(box, folder)
door.open()
phases = Phases(box, door)
put_in_place(phases)
dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=0, world_size=1)
def calls():
    door.flight.poll()
    return [(c.op, c.seq, c.state.name) for c in BoxReader(box.memory).calls()]
"""

# Gloo's threads and the end of an interpreter do not go well together, with or without us.
EPILOGUE = """
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture
def run(forked):
    def run(body):
        done = forked.run(textwrap.dedent(PREAMBLE) + textwrap.dedent(body) + EPILOGUE)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    return run


def test_every_way_passes(run):
    """User calls, DDP's reducer, functional collectives, inference mode: all are seen and complete."""
    found, _ = run("""
        x = torch.ones(4)
        dist.all_reduce(x)
        with torch.inference_mode():
            dist.all_reduce(torch.ones(2))
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        dist.broadcast(x, src=0)
        dist.all_gather([torch.zeros(4)], x)
        dist.all_gather_into_tensor(torch.zeros(4), x)
        dist.reduce_scatter_tensor(torch.zeros(4), x)
        dist.barrier()
        dist.monitored_barrier()
        import torch.distributed._functional_collectives as funcol
        funcol.all_reduce(x, "sum", dist.group.WORLD).add(1)
        print(json.dumps(calls()))
    """)
    ops = ["all_reduce"] * 3 + ["broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor"]
    ops += ["barrier", "monitored_barrier", "all_reduce"]
    assert [call[0] for call in found] == ops
    assert [call[1] for call in found] == list(range(1, len(ops) + 1))
    assert {call[2] for call in found} == {"COMPLETED"}


def test_numbers_are_the_same(run):
    """Training with and without the door gives the same bits."""
    found, _ = run("""
        from torch.nn.parallel import DistributedDataParallel as DDP
        def train():
            torch.manual_seed(0)
            model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)))
            optimizer = torch.optim.Adam(model.parameters())
            for _ in range(5):
                model(torch.randn(6, 4)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            return [p.tolist() for p in model.parameters()]
        with_door = train()
        steps = BoxReader(box.memory).status.steps
        door.close(); phases.remove()
        print(json.dumps([with_door == train(), steps]))
    """)
    assert found == [True, 5]


def test_a_failing_hook_detaches_itself_and_says_so_once(run):
    found, said = run("""
        door.close()
        door.signatures.reader = lambda spec: lambda args: 1 / 0
        door.open()
        x = torch.ones(3) * 2
        dist.all_reduce(x); dist.all_reduce(x)
        print(json.dumps([x.tolist(), not door.is_open]))
    """)
    assert found == [[2.0, 2.0, 2.0], True]
    assert said.count("failed and was disabled") == 1


def test_what_a_script_puts_in_the_place_of_builtins_is_not_called(run):
    """Neither by hooks nor by what they import: they have Python's own, and record as ever."""
    found, said = run("""
        import builtins, time
        kept, dumps, x = dict(vars(builtins)), json.dumps, torch.ones(3)
        def no(*given, **named): raise RuntimeError("not yours")
        time.monotonic = time.time_ns = time.perf_counter = json.dumps = no
        wrap = lambda real: lambda *given: no() if "/ddpnb/" in sys._getframe(1).f_code.co_filename else real(*given)
        for name in ("len", "open", "max", "min", "any", "all", "next", "iter", "hasattr", "getattr", "sorted", "id", "sum"):
            setattr(builtins, name, wrap(kept[name]))
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        vars(builtins).update(kept)
        json.dumps = dumps
        print(json.dumps([x.tolist(), door.is_open, calls()]))
    """)
    assert found == [[1.0, 1.0, 1.0], True, [["all_reduce", 1, "COMPLETED"], ["all_reduce", 2, "COMPLETED"]]]
    assert "disabled" not in said


def test_detached_in_the_middle_no_call_is_left_in_flight(run):
    found, _ = run("""
        door.gate.stops = lambda call: 1 / 0
        door.gate.armed.append(True)
        x = torch.ones(3)
        dist.all_reduce(x)
        print(json.dumps([x.tolist(), not door.is_open, calls()]))
    """)
    assert found == [[1.0, 1.0, 1.0], True, [["all_reduce", 1, "DROPPED"]]]


def test_what_a_signal_handler_raises_while_a_call_is_held_is_the_users(run):
    found, said = run("""
        from ddpnb.recording.holds import Hold
        def late(*_): raise TimeoutError("mine")
        signal.signal(signal.SIGALRM, late)
        door.gate.hold(Hold())
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        told = ""
        try:
            dist.all_reduce(torch.ones(3))
        except TimeoutError as error:
            told = str(error)
        door.gate.resume(); door.gate.end_of_run()
        dist.all_reduce(torch.ones(3))
        print(json.dumps([told, calls()]))
    """)
    assert found == ["mine", [["all_reduce", 1, "REFUSED"], ["all_reduce", 1, "COMPLETED"]]]
    assert "hook failed" not in said


def test_what_a_signal_handler_raises_inside_of_the_door_is_the_users(run):
    """Python runs handlers anywhere: here before a call, in the fence, and before a record."""
    found, said = run("""
        def late(*_): raise TimeoutError("mine")
        signal.signal(signal.SIGALRM, late)
        class Announcements:
            def __init__(self, *given): pass
            def announce(self, seq, agreed, exchange): interrupt(); return []
            def withdraw(self, seq): withdrawn.append(seq)
        def interrupt(*_): signal.raise_signal(signal.SIGALRM)
        withdrawn, told = [], []
        def attempt(call):
            try:
                call()
            except TimeoutError as error:
                told.append(str(error))
        door.on_call.append(interrupt)
        attempt(lambda: dist.all_reduce(torch.ones(3)))
        door.on_call.clear()
        (group,) = door.groups.known.values()
        group.board = Announcements()
        attempt(lambda: dist.barrier())
        group.board = None
        work = dist.all_reduce(torch.ones(3), async_op=True)
        door.flight.loosen = interrupt
        attempt(lambda: dist.all_reduce(torch.ones(3)))
        del door.flight.loosen
        dist.all_reduce(torch.ones(3))
        print(json.dumps([told, withdrawn, calls(), bool(door.off)]))
    """)
    calls = [
        ("all_reduce", 1, "REFUSED"),
        ("barrier", 1, "REFUSED"),
        ("all_reduce", 1, "COMPLETED"),
        ("all_reduce", 2, "COMPLETED"),
    ]
    assert found == [["mine"] * 3, [1], [list(call) for call in calls], False]
    assert "failed" not in said


def test_closed_leaves_no_trace(run):
    found, _ = run("""
        from torch._C._distributed_c10d import Work
        door.close(); phases.remove()
        dist.all_reduce(torch.ones(1))
        print(json.dumps([calls(), Work.wait.__name__, dist.init_process_group.__module__]))
    """)
    assert found[0] == []
    assert found[1] == "wait"


def test_two_groups_with_the_same_ranks_are_told_apart(run):
    found, _ = run("""
        a, b = dist.new_group([0]), dist.new_group([0])
        for group in (a, b, b):
            dist.all_reduce(torch.ones(1), group=group)
        print(json.dumps([(c.group.key, c.seq) for c in BoxReader(box.memory).calls()]))
    """)
    assert found == [["0#1", 1], ["0#2", 1], ["0#2", 2]]


def test_the_members_of_a_group_may_come_from_an_iterator(run):
    found, _ = run("""
        group = dist.new_group(rank for rank in [0])
        dist.all_reduce(torch.ones(1), group=group)
        print(json.dumps([dist.get_world_size(group), calls()]))
    """)
    assert found == [1, [["all_reduce", 1, "COMPLETED"]]]


def test_no_tensor_is_kept_alive(run):
    """After a wait the door holds nothing: memory use stays the user's own."""
    found, _ = run("""
        import gc, time, weakref
        class Marked(torch.Tensor): pass
        alive = []
        for asynchronous in (False, True):
            x = torch.ones(1000)
            storage = weakref.ref(x.untyped_storage())
            work = dist.all_reduce(x, async_op=asynchronous)
            if work is not None: work.wait()
            del x, work
            gc.collect()
            deadline = time.monotonic() + 20  # gloo's own thread lets go of it a moment after the wait
            while storage() is not None and time.monotonic() < deadline:
                time.sleep(0.01)
            alive.append(storage() is not None)
        print(json.dumps([alive, len(door.flight.pending)]))
    """)
    assert found == [[False, False], 0]


def test_a_destroyed_group_is_let_go(run):
    """Held by the door, it would keep its connections, and peers would wait instead of being told."""
    found, _ = run("""
        import gc, weakref
        one = dist.new_group([0])
        dist.all_reduce(torch.ones(1), group=one); dist.all_reduce(torch.ones(1))
        groups = [weakref.ref(one), weakref.ref(dist.group.WORLD)]
        dist.destroy_process_group(one)
        del one
        gc.collect()
        first = [group() is None for group in groups]
        dist.destroy_process_group()
        gc.collect()
        print(json.dumps([first, [group() is None for group in groups]]))
    """)
    assert found == [[True, False], [True, True]]


def test_a_forked_child_does_not_write_into_the_box(run):
    found, _ = run("""
        from ddpnb.recorder import rank
        before = len(calls())
        os.environ["DDPNB_FOLDER"], os.environ["RANK"] = tempfile.mkdtemp(), "0"
        door.close(); phases.remove()
        own = rank.start()
        from ddpnb.recording.blackbox import BoxReader
        seen = lambda: (BoxReader(own.box.memory).status, len(BoxReader(own.box.memory).calls()))
        dist.all_reduce(torch.ones(1))
        parent = seen()
        for act in own.box.step, lambda: dist.new_group([0]), lambda: dist.all_reduce(torch.ones(1), async_op=True):
            child = os.fork()
            if child == 0:
                # A thread of gloo may have held its lock at the fork: then torch waits for that lock in the child.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(10)
                act()
                os._exit(0)
            os.waitpid(child, 0)
        print(json.dumps([parent == seen(), parent[1]]))
    """)
    assert found == [True, 1]


class Work:
    """A call whose end nobody has seen yet."""

    def is_completed(self):
        return False


@pytest.fixture
def old_call(tmp_path):
    """A door, a work, and the place of its record, which a later call has taken."""
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    door, work, at = Door(box, str(tmp_path)), Work(), layout.CALLS_AT + 3 * layout.CALL_SIZE

    def takes(number, state):
        layout.CALL.pack_into(box.memory, at, number + 1, 0, number, 0, 0, int(state), 7, -1, 0, 0, 0, 1, 1, 1)

    yield door, work, at, takes
    door.flight.pending.clear()


def test_a_wait_for_a_call_that_left_the_box_leaves_the_later_ones_record_alone(old_call):
    door, work, at, takes = old_call
    takes(3 + layout.CALLS, CallState.COMPLETED)
    record = door.box.memory[at : at + layout.CALL_SIZE]
    door.flight.pending[work] = at, 3, True
    during = []

    def wait(_work, *_):
        during.append((door.box.memory[at : at + layout.CALL_SIZE], BoxReader(door.box.memory).events()))

    watched(wait, door)(work, timedelta(seconds=5))
    ((held, (wait,)),) = during
    assert held == record == door.box.memory[at : at + layout.CALL_SIZE]
    assert (type(wait), wait.state, wait.site.file) == (LateWait, "open", __file__)
    assert [event.state for event in BoxReader(door.box.memory).events()] == ["done"]


def test_a_record_that_is_taken_during_a_wait_is_left_alone_afterwards(old_call):
    """As on a CUDA device, where wait() returns before the call is complete."""
    door, work, at, takes = old_call
    takes(3, CallState.ISSUED)
    door.flight.pending[work] = at, 3, False
    watched(lambda *_: takes(3 + layout.CALLS, CallState.COMPLETED), door)(work)
    assert door.box.memory[at + layout.CALL_STATE_AT] == CallState.COMPLETED
    assert work not in door.flight.pending


def test_a_peer_in_a_group_is_named_by_its_rank_in_the_world(tmp_path):
    door = Door(BlackBox(str(tmp_path / "rank0.box"), 0), str(tmp_path))
    group, send = SimpleNamespace(ranks=(4, 7), turns={}), SimpleNamespace(name="send", peer=0, tag=1)
    calls = [(1, 9), (1, 9), (0, 9), (-1, 9)]
    assert [door._p2p(send, group, call) for call in calls] == [(7, 9, 1), (7, 9, 2), (4, 9, 1), (-1, 9, 1)]


def test_what_the_program_asks_of_a_work(tmp_path):
    """Until the call is complete, its record says when the program has asked for it."""

    class Work:
        complete = False

        def is_completed(self):
            return self.complete

    door = Door(BlackBox(str(tmp_path / "rank0.box"), 0), str(tmp_path))
    number, at, work = door.box.next_call(), layout.CALLS_AT, Work()
    layout.CALL.pack_into(door.box.memory, at, number + 1, 0, 1, 0, 0, int(CallState.ISSUED), 0, -1, 0, 0, 0, 1, 1, 0)
    layout.PROGRESS.pack_into(door.box.memory, layout.PROGRESS_AT, number + 1, 1)
    door.flight.pending[work] = at, number, False
    question = asked(Work.is_completed, door)

    def call():
        return BoxReader(door.box.memory).calls()[0]

    assert (call().asked_ns, call().done_ns) == (0, 0)
    assert question(work) is False
    first = call().asked_ns
    assert first > 0 and call().done_ns == 0 and call().state is CallState.ISSUED
    assert question(work) is False and call().asked_ns > first
    work.complete = True
    assert question(work) is True
    assert (call().state, call().asked_ns) == (CallState.COMPLETED, 0) and call().done_ns > first
