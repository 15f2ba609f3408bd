"""Which ranks ran which line, of a live world and after it."""

from __future__ import annotations

import sys

import pytest

import ddpnb

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="Python reports lines from 3.12 on"),
]

SCRIPT = """\
import torch
import torch.distributed as dist

import checks_of_lines

dist.init_process_group("gloo")
for step in range(8):
    if dist.get_rank() == 0:
        print(step)
    if checks_of_lines.is_bad(dist.get_rank(), step):
        continue
    dist.all_reduce(torch.ones(4))
dist.barrier()
"""
HELPER = """\
def is_bad(rank, step):
    if rank == 1 and step == 5:
        return True
    return False
"""


@pytest.mark.full
def test_ranks_that_part_in_a_helper(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checks_of_lines.py").write_text(HELPER)
    script = tmp_path / "train_of_lines.py"
    script.write_text(SCRIPT)
    run = world.run(str(script), stream=None).wait(60)
    assert run.outcome == "hang", run.diagnosis
    whole = world.lines("checks_of_lines.py", window="run")
    assert [(row.number, row.ranks) for row in whole.rows if row.only_some] == [(3, (1,))]
    assert whole.rows[2].windows[1] == 1
    (parted,) = [row for row in run.lines("checks_of_lines.py", "run").rows if row.only_some]
    assert parted.text.strip() == "return True"
    shown = str(run.lines())
    assert "only rank" in shown
    parts = str(run.partings)
    assert parts.startswith("Ranks part at a decision: train_of_lines.py:10")
    assert (
        "rank 1 -> 11 |     continue\n" in parts
        and "ranks 0, 2, 3 -> 12 |" in parts
        and "checks_of_lines.py:2" in parts
    )
    assert str(world.partings()) == parts
    world.save("hang.ddpnb")
    (tmp_path / "checks_of_lines.py").write_text("# another text\n")
    loaded = ddpnb.load("hang.ddpnb")
    assert ddpnb.lines(loaded, "checks_of_lines.py", "run").rows == whole.rows
    assert str(ddpnb.partings(loaded)) == parts
    world.release()
    assert str(run.lines("train_of_lines.py", "run")).startswith("train_of_lines.py, the whole run (ranks 0-3)")


def test_a_file_that_was_changed_after_the_run_began(world, tmp_path):
    script = tmp_path / "changed_of_lines.py"
    script.write_text(
        "import os\nif os.environ['RANK'] == '0':\n    with open(__file__, 'a') as file:\n        file.write('# more\\n')\n"
    )
    run = world.run(str(script), stream=None).wait(60)
    assert "was changed after the run began" in str(run.lines(window="run"))
