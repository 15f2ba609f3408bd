"""The path of each rank of a live world, also of one that hangs outside of a collective."""

from __future__ import annotations

import sys

import pytest

import ddpnb
from tests.recorder.paths.paths import told

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="Python reports branches from 3.12 on"),
]

SCRIPT = """\
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(3):
    if step == 1 and dist.get_rank() == 1:
        while True:
            time.sleep(0.05)
    dist.all_reduce(torch.ones(4))
"""


@pytest.mark.full
def test_paths_of_a_hang(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train_of_paths.py"
    script.write_text(SCRIPT)
    run = world.run(str(script), stream=None).wait(60)
    assert run.outcome == "hang", run.diagnosis
    first = ["init_process_group with -1 of  at 5", "6 -> 6", "7 -> 10", "all_reduce #1 of default_pg at 10", "6 -> 6"]
    ranks = run.recording.ranks
    assert told(ranks[0].path)[-7:] == [*first, "7 -> 7", "7 -> 10", "all_reduce #2 of default_pg at 10"][-7:]
    words = told(ranks[1].path)
    at = words.index(first[0])
    assert words[at : at + 8] == [*first, "7 -> 7", "7 -> 8"][:8], words[at:]
    (code,) = (code for code in ranks[1].path.codes if code.file == str(script))
    assert [branch.line for branch in code.branches][:2] == [6, 7]
    run.recording.save("hang.ddpnb")
    assert ddpnb.load("hang.ddpnb").ranks[1].path == ranks[1].path
    world.release()
