"""What stays of a run, and what happens where there is no room for more."""

from __future__ import annotations

import gc
import os
import re
import resource
import tempfile

import pytest
from ipyparallel.error import RemoteError

from ddpnb.errors import LaunchError
from ddpnb.recording import blackbox as layout

pytestmark = pytest.mark.world

CALL = """
import torch, torch.distributed as dist
if not dist.is_initialized():
    dist.init_process_group("gloo")
dist.all_reduce(torch.ones(3))
dist.get_rank()
"""


def files(world):
    """The files of runs, by number of the run."""
    names = [*os.listdir(world._ranks.folders.output), *os.listdir(world._ranks.folders.memory)]
    return {
        int("".join(filter(str.isdigit, part))) for name in names for part in name.split("-") if part.startswith("run")
    }


def strings(world):
    """Bytes of the table of strings of rank 0 that are used."""
    with open(os.path.join(world._ranks.folders.memory, "rank0.box"), "rb") as file:
        return layout.STATUS.unpack_from(file.read(4096), layout.STATUS_AT)[0]


def test_what_ranks_print_is_not_kept_in_memory(world, tmp_path):
    run = world.execute("print('x' * 1000)", stream=None).wait(30)
    assert run.log_dir.startswith(os.path.join(tempfile.gettempdir(), f"ddpnb-{os.geteuid()}", ""))
    assert os.path.getsize(os.path.join(run.log_dir, "rank0.log")) >= 1000
    kept = os.listdir(world._ranks.folders.memory)  # earlier runs may have had processes of their own
    assert not [name for name in kept if re.match(rf"run{run.number}\b", name)]


@pytest.mark.full
def test_a_run_that_nobody_keeps_leaves_nothing(world, tmp_path):
    """Each left its files, its strings in every box, open files in the launcher, and a task in the hub. The World keeps the last."""

    def again():
        assert world.execute(CALL, stream=None).wait(30).outcome == "ok"

    kept = world.execute(CALL, stream=None).wait(30)
    own = world.execute("print('kept')", stream=None).wait(30)
    written = world.run(lambda: print("kept"), log_dir=tmp_path, stream=None).wait(30).log_dir
    again()
    again()  # the one before has made the group
    table, descriptors = strings(world), len(os.listdir("/proc/self/fd"))
    gc.disable()  # all is freed without it
    try:
        for _ in range(world._ranks.runs.maxlen + 1):
            again()
        assert len(os.listdir("/proc/self/fd")) <= descriptors
    finally:
        gc.enable()
    kept_too = [world.execute(CALL, stream=None).wait(30) for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert strings(world) < table + 50  # the number of a run may be longer
    assert set(kept_too) < set(world.runs)
    ours = {number for number in files(world) if number >= kept.number}  # a run that was refused earlier may leave some
    assert ours == {kept.number, own.number, *(run.number for run in world.runs)}
    assert "kept" in own.log(0)
    assert os.listdir(written)  # the user's own folder
    assert len(world._ranks.processes.client.history) <= world.size
    with pytest.raises(RemoteError, match="NoData"):
        world._ranks.processes.client.hub_history()


def test_a_group_that_lives_on_keeps_its_name(world):
    """The table of strings begins again with each cell; the group, its calls and their places are known all the same."""
    for number in range(2):
        run = world.execute(CALL, stream=None).wait(30)
        assert run.outcome == "ok"
        for record in run.recording.ranks.values():
            call = record.calls[-1]
            assert (call.op, call.group.ranks, call.signature.shapes) == ("all_reduce", (0, 1, 2, 3), ((3,),))
            assert call.site.line == 5
        assert run.recording.gaps == (), number


def test_a_rank_is_not_touched_where_there_is_no_room_for_its_successor(world):
    before = world.pids()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(LaunchError, match="no space") as failed:
            world.restart(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "No rank was changed" in failed.value.hint
    assert world.pids() == before
    assert world.execute("1 + 1", stream=None).wait(30).outcome == "ok"
