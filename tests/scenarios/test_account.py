"""Who is waited for, on real ranks. Who and where is asserted, never how long."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

import ddpnb
from ddpnb.recording.timing.account import account
from ddpnb.render import as_text, startup
from ddpnb.render.account import TimeAccount

pytestmark = pytest.mark.world

SLOW = 2

DDP = f"""
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    optimizer.zero_grad()
    if rank == {SLOW}:
        time.sleep(0.25)
    loss = model(torch.randn(4, 64)).square().mean()
    loss.backward()
    optimizer.step()
"""

DATA = f"""
import time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("gloo")
rank = dist.get_rank()
weight = torch.zeros(2, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.01)

class Files(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        time.sleep(0.25 if rank == {SLOW} else 0)
        return torch.randn(2)

for batch in DataLoader(Files()):
    optimizer.zero_grad()
    (batch @ weight).sum().backward()
    dist.all_reduce(weight.grad)
    optimizer.step()
"""


def run(world, tmp_path, text):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(text))
    going = world.run(script, stream=None).wait(60)
    assert [ending.well for ending in going.endings.values()] == [True] * 4, str(going.diagnosis)
    return going.account, text.splitlines()


@pytest.mark.full
def test_a_saved_recording_has_the_account_and_the_start_up_of_the_live_ranks(world, tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(DDP))
    run = world.run(tmp_path / "train.py", stream=None).wait(60)
    run.recording.save(tmp_path / "run.ddpnb")
    loaded = ddpnb.load(tmp_path / "run.ddpnb")
    live = run.account
    assert TimeAccount.of(account(loaded)) == live and str(TimeAccount.of(account(loaded))) == str(live)
    assert account(loaded) == account(run.recording)
    again = account(replace(loaded, account=None))  # from the calls and marks that were saved
    assert [(rank.steps, rank.wall_s) for rank in again.ranks] == [(rank.steps, rank.wall_s) for rank in live.ranks]
    assert [straggler.rank for straggler in again.stragglers[:1]] == [SLOW]
    assert loaded.startup is None
    steps = world.init().run("first barrier")
    world.save(tmp_path / "startup.ddpnb")
    saved = ddpnb.load(tmp_path / "startup.ddpnb").startup
    assert saved == steps.state and as_text.text(*startup.document(saved)) == str(steps)
    assert str(steps) in ddpnb.show(ddpnb.load(tmp_path / "startup.ddpnb")).text


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "waits_in", "because"),
    [
        pytest.param(DDP, "    loss.backward()", "computes longer", id="DDP"),
        pytest.param(DATA, "    dist.all_reduce(weight.grad)", "longer for data", id="data"),
    ],
)
def test_the_slow_rank_is_waited_for(world, tmp_path, text, waits_in, because):
    account, lines = run(world, tmp_path, text)
    first = account.stragglers[0]
    assert first.rank == SLOW
    assert account.pattern == "one"
    site = first.sites[0][0]
    assert (site.file, lines[site.line - 1]) == (str(tmp_path / "train.py"), waits_in)
    assert because in first.because
    for rank in account.ranks:
        assert (rank.steps, rank.device) == (12, "cpu")
        assert rank.parts.total + rank.other_s == pytest.approx(rank.wall_s, rel=0.01)
        if rank.rank != SLOW:
            assert rank.waited_for[0][0] == SLOW
    assert account.covered == 1
    assert f"mostly for rank {SLOW}" in account.headline


def test_who_is_waited_for_can_be_asked_while_the_run_hangs(world, victims):
    going = world.run(victims / "missing.py", "early_return", stream=None).wait(30)
    assert [one.rank for one in going.account.stragglers] == [1]
    assert going.account.parts.waiting > 0


def test_a_run_without_collectives_has_an_account(world, victims):
    account = world.run(victims / "alone.py", stream=None).wait(30).account
    assert len(account.ranks) == 4
    assert account.stragglers == ()
    assert "nothing to report" in account.headline
