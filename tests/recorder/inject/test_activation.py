"""Which processes of a job become ranks, and what is noted of the others."""

from __future__ import annotations

import pickle

import pytest
import torch.distributed as dist
from torch.distributed import rpc

from ddpnb.recorder.events.bindings import rebind
from ddpnb.recorder.files.boards import remove_boards
from ddpnb.recorder.inject import activation
from ddpnb.recording import protocol
from ddpnb.recording.rpc import waiting


@pytest.mark.parametrize("size", [2, 1])
def test_a_process_that_waits_for_others_in_init_rpc(size, tmp_path, monkeypatch):
    original, seen = rpc.init_rpc, []

    def meets(*_args, **_kwargs):
        seen.append(list(waiting(str(tmp_path)).values()))
        raise RuntimeError("nobody comes")

    monkeypatch.setenv(protocol.JOB, str(tmp_path))
    monkeypatch.setattr(dist, "rendezvous", meets)
    activation._note_rpc()
    try:
        with pytest.raises(RuntimeError, match="nobody comes"):
            rpc.init_rpc("worker", rank=0, world_size=size)
    finally:
        rebind({id(rpc.init_rpc): original}, {"init_rpc"})
    assert rpc.init_rpc is original
    assert seen == [["1 of 2 ranks have joined"] if size == 2 else []]
    assert list(tmp_path.iterdir()) == []


def test_what_waits_for_a_group_is_pickled_by_name():
    """As an argument of ``mp.spawn``; it is looked up in the module that defines it."""
    original = dist.init_process_group
    activation._wait_for_group()
    try:
        waits = dist.init_process_group
        assert waits is not original
        assert pickle.loads(pickle.dumps(waits)) is waits
    finally:
        activation._unhook()
    assert dist.init_process_group is dist.distributed_c10d.init_process_group is original


def test_the_program_by_which_a_rank_replaces_itself_is_the_same_rank_of_the_same_start(tmp_path, monkeypatch):
    first = protocol.claim(str(tmp_path), "address", 0)
    assert protocol.claim(str(tmp_path), "address", 0) == first
    (tmp_path / first / "fence-1-0").touch()
    remove_boards(first)  # on which the former program announced
    assert not (tmp_path / first / "fence-1-0").exists()
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert protocol.claim(str(tmp_path), "address", 0) == protocol.start_folder(str(tmp_path), "address", 1)
