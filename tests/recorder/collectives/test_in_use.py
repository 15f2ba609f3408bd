"""Which tensors of asynchronous calls a program changes before it waits."""

from __future__ import annotations

import textwrap

import pytest

from tests.recorder.collectives.test_door import run as run_door

__all__ = ["run_door"]

EVENTS = """
from ddpnb.recording.events.runs import ChangedInFlight
def changed():
    return [(e.operation, e.site.function) for e in BoxReader(box.memory).events() if isinstance(e, ChangedInFlight)]
x = torch.ones(4)
"""


@pytest.fixture
def run(run_door):
    return lambda body: run_door(EVENTS + textwrap.dedent(body))


def test_a_change_before_the_wait_is_recorded_once_for_each_place(run):
    found, _ = run("""
        def average(tensors):
            works = [dist.all_reduce(t, async_op=True) for t in tensors]
            for t in tensors:
                t /= 2
            for work in works:
                work.wait()
        def alone(group):
            work = group.broadcast(x, 0)
            x[0] = 3
            work.wait()
        for _ in range(3):
            average([x, torch.ones(2)])
        alone(dist.group.WORLD)
        print(json.dumps(changed()))
    """)
    assert found == [["all_reduce", "average"], ["broadcast", "alone"]]


def test_what_is_changed_after_the_wait_or_is_another_part_is_no_change(run):
    """Nor is what the backend does itself, what comes after a question that was answered with yes, or after the future."""
    found, err = run("""
        import time
        calls = [
            lambda: dist.all_reduce(x, async_op=True),
            lambda: dist.broadcast(x, 0, async_op=True),
            lambda: dist.reduce(x, 0, async_op=True),
            lambda: dist.all_gather([torch.zeros(4)], x, async_op=True),
            lambda: dist.gather(x, [torch.zeros(4)], async_op=True),
            lambda: dist.scatter(x, [torch.ones(4)], async_op=True),
            lambda: dist.all_to_all_single(torch.empty(4), x, async_op=True),
        ]
        for call in calls:
            work = call()
            time.sleep(0.01)
            work.wait()
            x.mul_(1)
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            pass
        x.mul_(2)
        work.wait()
        work = dist.all_reduce(x, async_op=True)
        work.get_future().wait()
        x.mul_(2)
        work.wait()
        flat = torch.zeros(10)
        work = dist.all_reduce(flat[:5], async_op=True)
        flat[5:] += 1
        work.wait()
        with torch.inference_mode():
            y = torch.ones(2)
            work = dist.all_reduce(y, async_op=True)
            work.wait()
        dist.all_reduce(x)
        x.mul_(2)
        print(json.dumps([changed(), len(door.in_use.calls), bool(door.off)]))
    """)
    assert found == [[], 0, False] and "failed" not in err


def test_nothing_is_kept_of_a_work_that_nobody_waits_for(run):
    found, _ = run("""
        import gc, weakref
        for _ in range(2):
            y = torch.ones(2)
            gone = weakref.ref(y)
            dist.all_reduce(y, async_op=True)
            door.flight.drain(10)
            del y
        dist.barrier()
        gc.collect()
        print(json.dumps([len(door.in_use.calls), gone() is None]))
    """)
    assert found == [0, True]
