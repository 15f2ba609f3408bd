"""Sixteen live ranks on one machine, however few its cores: launched, hung, diagnosed, released, used again, closed."""

from __future__ import annotations

import contextlib
import os
import uuid

import psutil
import pytest

import ddpnb
from tests.torture.harness import MARK, folders, is_left, marked, read, until

pytestmark = [pytest.mark.torture, pytest.mark.timeout(500)]
RANKS, CULPRIT, STEPS = 16, 11, 6
RANK_BYTES = 400 << 20  # of memory, with torch

TRAIN = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(6):
    dist.all_reduce(torch.ones(4))  # reduce
dist.barrier()  # barrier
"""


def others(mark):
    return [pid for pid in marked(mark) if pid != os.getpid()]


def line(mark):
    return next(number for number, text in enumerate(TRAIN.splitlines(), 1) if text.endswith(f"# {mark}"))


@pytest.fixture
def mark():
    """Every process of the test carries it."""
    os.environ[MARK] = made = uuid.uuid4().hex
    yield made
    os.environ.pop(MARK, None)
    for pid in others(made):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()


def test_sixteen_live_ranks(mark, tmp_path):
    """Rank 11 does not make its fourth all-reduce: the others are one call behind it, and it hangs in the barrier."""
    if psutil.virtual_memory().available < RANKS * RANK_BYTES:
        pytest.skip("too little memory")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    with ddpnb.launch(RANKS, quiet=True) as world:
        own = folders(mark)
        world.inject("skip", ranks=[CULPRIT], op="all_reduce", seq=4)
        run = world.run(str(script), stream=None).wait(200)
        assert run.outcome == "hang", str(run.diagnosis)
        first = run.diagnosis.findings[0]
        assert first.culprits == (CULPRIT,), str(run.diagnosis)
        assert set(first.waiting) == set(range(RANKS)) - {CULPRIT}
        assert {rank: site.line for rank, site in first.where}[0] == line("reduce")
        assert len(str(run.diagnosis).splitlines()) < 40
        assert not world.release().left
        assert world.run(lambda: 7, stream=None).wait(120).results == [7] * RANKS
    until(f"all processes end, {[read(pid, 'cmdline') for pid in others(mark)]}", lambda: not others(mark), 30)
    assert [one for one in own if is_left(one)] == []
