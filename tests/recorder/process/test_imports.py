"""What runs on a rank needs torch alone, and takes numpy and xxhash where they are; what reads a report needs neither."""

from __future__ import annotations

import subprocess
import sys

import pytest

RANK = (
    "ddpnb.recorder.rank",
    "ddpnb.recorder.channel.control_channel",
    "ddpnb.recorder.collectives.door",
    "ddpnb.recorder.process.script",
)
READER = (
    "ddpnb.rules.diagnose",
    "ddpnb.render.card",
    "ddpnb.render.pages",
    "ddpnb.recording.findings",
    "ddpnb.recording.blackbox",
)
NOTEBOOK = [
    "ipyparallel",
    "IPython",
    "ipywidgets",
    "matplotlib",
    "rich",
    "markdown_it",
    "jupyterlab",
    "psutil",
    "cloudpickle",
    "zmq",
    "traitlets",
]


ABSENT = """
import importlib, sys
from importlib.machinery import PathFinder
class WithoutThem(PathFinder):  # finds distributions too: since 2.14 torch has its backends from their entry points
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {forbidden!r} else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutThem
for module in {modules!r}:
    importlib.import_module(module)
"""
TRAINED = """
import os, torch
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.shared import shared_file
from ddpnb.ranks.observe.replica_samples import ReplicaSamples
from ddpnb.recording import verbs
from ddpnb.recorder.rank import Rank
folder = os.getcwd()
rank = Rank(folder, 0)
rank.door.new_run(1, "warn")
rank.replicas.begin(1)
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 3)).sum().backward()
optimizer.step()
torch.distributed.destroy_process_group()
box = BoxReader(shared_file(folder + "/rank0.box"))
samples = ReplicaSamples(folder, [0], 1, lambda _, number: box.string(number))
samples.read()
print([one.hash for one in samples.models(0)])
held = {one.kind: one.digests for one in samples.samples(0)}
print(sorted(held), all(d.hash for kind in ("forward", "gradients") for d in held[kind].values()))
print(round(held["gradients"]["weight"].norm, 3))
print(rank.control.answer(verbs.message(verbs.Compare()))["facts"]["models"][0]["step"])
print(len(rank.control.obey(verbs.Values(model=0, tensor="bias")).values))
print(not {"numpy", "xxhash"} & set(sys.modules))
"""


def test_a_reader_needs_no_torch():
    code = ABSENT.format(forbidden=[*NOTEBOOK, "numpy", "xxhash", "torch"], modules=READER)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_a_rank_imports_nothing_of_what_judges(forked):
    program = "import importlib, sys\n" + "".join(f"importlib.import_module({module!r})\n" for module in RANK)
    done = forked.run(program + 'print({"ddpnb.recording.recording", "ddpnb.recording.findings"} & set(sys.modules))')
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.full
def test_a_model_is_followed_where_there_is_only_torch(tmp_path):
    code = ABSENT.format(forbidden=[*NOTEBOOK, "numpy", "xxhash"], modules=RANK) + TRAINED
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if not line.startswith("[Gloo] ")] == [  # until torch 2.10
        "['crc32']", "['backward', 'forward', 'gradients', 'updated'] True", "6.928", "1", "16", "True",
    ]  # fmt: skip


@pytest.mark.full
def test_a_module_of_the_user_named_xxhash_is_not_imported(tmp_path):
    (tmp_path / "xxhash.py").write_text("raise SystemExit('the script is not there yet')")
    code = "from ddpnb.recorder.stacks import digests; import sys; print(digests.HASH, 'xxhash' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path
    )
    assert done.stdout.split() == ["crc32", "False"], done.stderr


def test_the_package_itself_is_lazy():
    code = "import sys, ddpnb; assert not {'torch', 'ipyparallel', 'numpy', 'rich'} & set(sys.modules); dir(ddpnb)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)
