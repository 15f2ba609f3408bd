"""What a script does to its process is undone when it ends: the next run finds the process as it was."""

from __future__ import annotations

import builtins

import pytest

from ddpnb.engine.surroundings import restore_builtins

pytestmark = pytest.mark.world

TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
"""
CLOSED = "import os\nfor number in (0, 1, 2): os.close(number)\n"  # the store and gloo get these numbers
MODULES = "import sys\nfor name in ('json', 'pickle', 'threading', 'logging'): sys.modules[name] = object()\n"
BUILTINS = "import builtins\nbuiltins.len = builtins.open = builtins.isinstance = lambda *given: 0\n"


@pytest.mark.parametrize(
    ("lines", "outcomes"),
    [(CLOSED + TRAIN, {"ok"}), (MODULES + TRAIN, {"ok"}), (BUILTINS + TRAIN, {"ok", "crash"}), (BUILTINS, {"ok"})],
    ids=["closed files", "modules", "builtins", "builtins alone"],
)
def test_the_next_run_finds_the_process_as_it_was(world, tmp_path, lines, outcomes):
    (tmp_path / "spoils.py").write_text(lines)
    (tmp_path / "healthy.py").write_text(TRAIN + "print('as ever')\n")
    run = world.run(tmp_path / "spoils.py", stream=None).wait(60)
    assert run.outcome in outcomes, f"{run.diagnosis} {run.log(0)}"
    assert world.run(lambda: len("seven  "), stream=None).wait(60).results == [7] * world.size
    run = world.run(tmp_path / "healthy.py", stream=None).wait(60)
    assert run.outcome == "ok" and [run.log(rank).strip() for rank in range(world.size)] == ["as ever"] * world.size


def test_builtins_that_were_added_or_are_kept_stay(monkeypatch):
    before = dict(vars(builtins))
    monkeypatch.setattr(builtins, "_", str, raising=False)
    monkeypatch.setattr(builtins, "aiter", None)
    monkeypatch.setattr(builtins, "vars", None)
    monkeypatch.delattr(builtins, "anext")
    restore_builtins(before, keep=("aiter",))
    assert (builtins.vars, builtins.anext, builtins.aiter, builtins._) == (before["vars"], before["anext"], None, str)
