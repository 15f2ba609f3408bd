"""Which processes of a job become ranks, and when."""

from __future__ import annotations

import pickle
import sys

import torch.distributed as dist

from ddpnb.inject import activation


def test_what_waits_for_a_group_is_pickled_by_name(monkeypatch):
    """As an argument of ``mp.spawn``; it is looked up in the module that defines it."""
    original = dist.init_process_group
    for name in activation._MODULES:
        monkeypatch.setattr(sys.modules[name], "init_process_group", original)  # put back after the test
    monkeypatch.setattr(activation, "_originals", {})
    activation._wait_for_group()
    waiting = dist.init_process_group
    assert waiting is not original
    assert pickle.loads(pickle.dumps(waiting)) is waiting
    activation._unhook()
    assert dist.init_process_group is dist.distributed_c10d.init_process_group is original
