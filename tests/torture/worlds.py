"""Worlds whose processes and folders can all be found again."""

from __future__ import annotations

import contextlib
import os
import uuid

import ddpnb
from tests.torture.harness import MARK, folders, is_left, marked, read, until


def train(steps):
    import time

    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    for _ in range(steps):
        dist.all_reduce(torch.ones(4))
        time.sleep(0.01)
    return dist.get_rank()


@contextlib.contextmanager
def fresh():
    """A world all of whose processes can be found again."""
    os.environ[MARK] = mark = uuid.uuid4().hex
    try:
        with ddpnb.launch(2, quiet=True, patience=3, end_after_patience=True) as world:
            own = folders(mark)
            yield world
        until(f"all processes end, {[read(pid, 'cmdline') for pid in others(mark)]}", lambda: not others(mark), 15)
        assert [one for one in own if is_left(one)] == []
    finally:
        os.environ.pop(MARK, None)


def others(mark):
    return [pid for pid in marked(mark) if pid != os.getpid()]


def recover(world, *, restart=True):
    """As a user does after something went wrong: then the next run is a healthy one."""
    if world.release().left or restart:
        world.restart()
    run = world.run(train, 5, stream=None).wait(90)
    assert run.outcome == "ok" and run.results == [0, 1], str(run.diagnosis)


class Pair:
    """A world of two ranks that tests share as long as it recovers; after a failure there is another."""

    def __init__(self):
        self._stack = contextlib.ExitStack()
        self._world = None

    @contextlib.contextmanager
    def lend(self, *, restart=True):
        self._world = self._world or self._stack.enter_context(fresh())
        try:
            yield self._world
            recover(self._world, restart=restart)
        except BaseException:
            self.close()
            raise

    def close(self):
        self._world = None
        self._stack.close()
