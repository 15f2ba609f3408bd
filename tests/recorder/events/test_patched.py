"""The table of replaced functions: each is in torch, and no other is replaced."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest
import torch
import torch.distributed.algorithms.join
import torch.distributed.tensor

from ddpnb.recorder.events.hooks import Hooks, full_name, put_in_place
from ddpnb.recorder.events.torch_names import NAMES, has
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import RUN_ACTIVE, BoxReader
from ddpnb.recording.events.runs import FunctionNotFound
from ddpnb.recording.recording import RankRecord
from tests.recorder.events.patched import REPLACED

KNOWN = {one.name for one in NAMES}

#: makes a rank, and prints which functions of all modules and classes of torch and of the table it has replaced, under
#: which other names they were known, and which names of any module still hold one of them
OBSERVED = """
import json, multiprocessing.process, os, random, subprocess, sys, tempfile
import torch, torch.distributed as dist, torch.distributed.algorithms, torch.utils.data, torch.distributed.algorithms.join
from torch.distributed.optim import ZeroRedundancyOptimizer

def functions():
    found = {}
    places = [module for name, module in list(sys.modules.items()) if name == "torch" or name.startswith("torch.")]
    for module in [*places, os, random, subprocess, multiprocessing.process]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                for inner, one in list(vars(value).items()):
                    if callable(one) or isinstance(one, (classmethod, staticmethod)):
                        found[f"{module.__name__}.{value.__qualname__}.{inner}"] = one
            elif callable(value) and not isinstance(value, type):
                found[f"{module.__name__}.{name}"] = value
    return found

from ddpnb.recorder.faults.in_data import InData
from ddpnb.recorder.faults.in_model import InModel
from ddpnb.recorder.rank import Rank
before = functions()
rank = Rank(tempfile.mkdtemp(), 0)
for kind in (InData, InModel):
    kind(rank.box, 0).install()
after = functions()
changed = {name: before.get(name) for name in after if after[name] is not before.get(name)}
table = {id(before[name]) for name in sys.argv[1].split() if name in before}
own = [name for name in changed if name in sys.argv[1].split() or id(changed[name]) not in table]
still = [
    f"{module}.{name}" for module, found in list(sys.modules.items()) if module.partition(".")[0] not in ("__main__", "ddpnb")
    for name, value in list(vars(found).items()) if id(value) in table and not name.startswith("__")
]
print(json.dumps([sorted(own), sorted(set(changed) - set(own)), still]))
"""


def observed():
    names = " ".join(REPLACED)
    done = subprocess.run(
        [sys.executable, "-c", OBSERVED, names], capture_output=True, text=True, timeout=240, check=True
    )
    return json.loads(done.stdout)


_NEW = "torch.distributed.distributed_c10d.ProcessGroup.reconfigure"  # torch 2.14
HERE = [name for name in REPLACED if name != _NEW or hasattr(torch.distributed.ProcessGroup, "reconfigure")]


@pytest.mark.parametrize("name", HERE)
def test_a_function_is_where_the_table_says(name):
    *parts, last = name.split(".")
    module = next(sys.modules[m] for n in range(len(parts), 0, -1) if (m := ".".join(parts[:n])) in sys.modules)
    owner = functools.reduce(getattr, parts[module.__name__.count(".") + 1 :], module)
    assert callable(getattr(owner, last, None)), f"{name} has moved: the recorder must watch something else"
    assert full_name(owner, last) == name


def test_a_rank_replaces_what_the_table_says():
    replaced, others, still = observed()
    assert set(replaced) == {name for name in REPLACED if name not in KNOWN or has(name)}
    # ``from torch.distributed.distributed_c10d import new_group`` gave these modules names of their own.
    assert {"torch.distributed.new_group", "torch.distributed.device_mesh.new_group"} <= set(others)
    assert still == [], "these names were not replaced"


class Lost(Hooks):
    def install(self):
        self.before(torch, "no_such_function", lambda: None)
        self.before(torch, "manual_seed", lambda *_: None)


class Unfit(Hooks):
    def install(self):
        self.before(torch, "manual_seed", lambda *_: None)
        self.before(torch.no_such_class, "method", lambda *_: None)


def test_a_set_of_hooks_that_torch_has_not_the_classes_for_is_left_out(tmp_path, capsys):
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    hooks, before = Unfit(box), torch.manual_seed
    put_in_place(hooks)
    assert torch.manual_seed is before
    assert "has no attribute 'no_such_class'" in capsys.readouterr().err
    box.set_run(1, RUN_ACTIVE)
    (gap,) = RankRecord(3, history=tuple(BoxReader(box.memory).events())).gaps
    assert (
        gap.startswith("Hooks of ddpnb failed on rank 3, and what they watch is not recorded: ")
        and "no_such_class" in gap
    )


def test_a_function_that_is_not_there_is_in_the_recording(tmp_path):
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    hooks = Lost(box)
    hooks.install()
    try:
        for run in (1, 2):
            hooks.new_run()
            box.set_run(run, RUN_ACTIVE)
            events = [event for event in BoxReader(box.memory).events() if isinstance(event, FunctionNotFound)]
            assert [event.function for event in events] == ["torch.no_such_function"]
    finally:
        hooks.remove()
    (gap,) = RankRecord(3, history=(FunctionNotFound(function="torch.x\x1b"),)).gaps
    assert gap.startswith("This version of torch has no torch.x") and gap.isprintable() and "rank 3" in gap
