"""Events of a training script: what it does to model and state outside of the collectives. Real torch."""

from __future__ import annotations

import inspect
import random
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpnb.model.blackbox import BoxReader
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.training import Training

ORIGINALS = (
    torch.save, torch.load, torch.set_rng_state, random.setstate, nn.Module.load_state_dict,
    vars(nn.SyncBatchNorm)["convert_sync_batchnorm"], DDP.__setattr__, DDP.register_comm_hook,
)  # fmt: skip


def now():
    return (
        torch.save, torch.load, torch.set_rng_state, random.setstate, nn.Module.load_state_dict,
        vars(nn.SyncBatchNorm)["convert_sync_batchnorm"], DDP.__setattr__, DDP.register_comm_hook,
    )  # fmt: skip


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.epoch = 0


@pytest.fixture
def box(tmp_path):
    return BlackBox(str(tmp_path / "rank0.box"), 0)


@pytest.fixture
def hooks(box):
    found = Training(box)
    found.install()
    yield found
    found.remove()
    assert now() == ORIGINALS


def told(box, *names):
    """(name, facts without the place) of the events."""
    found = BoxReader(box.memory).phases()
    assert names == ("hooks detached",) or not [p for p in found if p.name == "hooks detached"]
    place = ("file", "line", "function")
    return [
        (p.name, {k: v for k, v in p.facts.items() if k not in place}) for p in found if not names or p.name in names
    ]


def test_checkpoints(box, hooks, tmp_path):
    net, path = nn.Linear(2, 2), tmp_path / "epoch3.pt"
    torch.save({"model": net.state_dict(), "epoch": 3, "done": True, "loss": 0.5}, path)
    again = torch.load(path)
    net.load_state_dict(again["model"])
    assert told(box) == [
        ("checkpoint saved", {"path": str(path), "keys": ["model", "epoch", "done", "loss"]}),
        ("checkpoint read", {"path": str(path), "keys": ["model", "epoch", "done", "loss"], "numbers": {"epoch": 3}}),
        ("state loaded", {"what": "model", "class": "Linear", "wrapped": False, "keys": ["weight", "bias"]}),
    ]
    phase = BoxReader(box.memory).phases()[0]
    lines, start = inspect.getsourcelines(test_checkpoints)
    saved = start + next(n for n, text in enumerate(lines) if "torch.save" in text)
    assert (phase.facts["file"], phase.facts["line"]) == (__file__, saved)


def test_a_checkpoint_in_memory(box, hooks):
    import io

    file = io.BytesIO()
    torch.save([1, 2], file)
    file.seek(0)
    assert torch.load(file) == [1, 2]
    assert told(box) == [
        ("checkpoint saved", {"path": "BytesIO", "keys": []}),
        ("checkpoint read", {"path": "BytesIO", "keys": [], "numbers": {}}),
    ]


def test_states_of_optimizer_and_scaler(box, hooks):
    optimizer = torch.optim.Adam(nn.Linear(2, 2).parameters())
    optimizer.load_state_dict(optimizer.state_dict())
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(scaler.state_dict())
    assert told(box) == [
        ("state loaded", {"what": "optimizer", "class": "Adam"}),
        ("state loaded", {"what": "scaler", "class": "GradScaler"}),
    ]


def test_random_states(box, hooks):
    torch.set_rng_state(torch.get_rng_state())
    random.setstate(random.getstate())
    assert [name for name, _ in told(box)] == ["rng restored"] * 2


@pytest.mark.usefixtures("alone")
def test_communication_hooks(box, hooks):
    DDP(Net()).register_comm_hook(None, default_hooks.fp16_compress_hook)
    DDP(Net())._register_builtin_comm_hook(torch.distributed.BuiltinCommHookType.FP16_COMPRESS)
    first, second = (facts for _, facts in told(box, "comm hook"))
    assert first["hook"].endswith("default_hooks.fp16_compress_hook") and first["state"] == "NoneType"
    assert "FP16_COMPRESS" in second["hook"]


@pytest.mark.usefixtures("alone")
def test_conversion_is_told_once_for_the_whole_model(box, hooks):
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(Net(), Net()))
    assert isinstance(net[0][1], nn.SyncBatchNorm)
    nn.SyncBatchNorm.convert_sync_batchnorm(DDP(Net()))
    nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(2, 2)))  # nothing to convert
    assert [facts for _, facts in told(box, "sync batchnorm")] == [
        {"wrapped": False, "layers": 2},
        {"wrapped": True, "layers": 1},
    ]


@pytest.mark.usefixtures("alone")
def test_attributes_that_are_set_on_the_wrapper_instead_of_the_model(box, hooks):
    model = DDP(Net())
    model.own = 1
    model.train()
    model(torch.ones(3, 4)).sum().backward()
    assert told(box, "attribute on wrapper") == []
    model.epoch = 5
    model.epoch = 6
    assert [facts for _, facts in told(box, "attribute on wrapper")] == [{"name": "epoch"}]
    assert (model.epoch, model.module.epoch) == (6, 0)
    hooks.new_run()
    other = DDP(Net())
    other.epoch = 1
    assert len(told(box, "attribute on wrapper")) == 2


@pytest.mark.usefixtures("alone")
def test_settings_that_a_communication_hook_carries(box, hooks):
    def compress(dtype, rank):
        def hook(state, bucket):
            return default_hooks.allreduce_hook(state.group, bucket, dtype, rank)

        return hook

    class State:
        def __init__(self):
            self.group, self.start, self.names = None, 10, ["a"]

    DDP(nn.Linear(2, 2)).register_comm_hook(State(), compress(torch.bfloat16, 1))
    ((_, facts),) = told(box, "comm hook")
    assert facts["settings"] == {"dtype": "torch.bfloat16", "rank": "1", "start": "10"}


def test_a_state_that_is_loaded_without_being_strict(box, hooks):
    net, state = nn.Linear(2, 2), {"module.weight": torch.ones(2, 2), "bias": torch.ones(2)}
    net.load_state_dict(state, strict=False)
    net.load_state_dict(state, False)
    net.load_state_dict(net.state_dict())
    first, second, strict = (facts for _, facts in told(box, "state loaded"))
    assert (first["matched"], first["given"]) == (second["matched"], second["given"]) == (1, 2)
    assert "matched" not in strict


LEAVING = """
import os, signal, sys
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.training import Training

Training(BlackBox(sys.argv[1], 0)).install()
os.kill(os.getpid(), 0)  # only asks whether it is there
{leave}
"""


@pytest.mark.parametrize(
    ("leave", "status"),
    [
        ("os._exit(3)", 3),
        ("os._exit(status=3)", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.abort()", -6),
    ],
)
def test_the_line_by_which_a_process_ends_itself(tmp_path, leave, status):
    script, box = tmp_path / "leaves.py", tmp_path / "rank0.box"
    script.write_text(LEAVING.format(leave=leave))
    done = subprocess.run([sys.executable, str(script), str(box)], timeout=60, capture_output=True, check=False)
    assert done.returncode == status, done.stderr
    (found,) = [phase for phase in BoxReader(box.read_bytes()).phases() if phase.name == "process ends"]
    assert (found.facts["file"], found.facts["line"]) == (str(script), LEAVING.count("\n"))


def test_errors_and_results_are_torchs(box, hooks, tmp_path):
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "none.pt")
    net = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="Missing key"):
        net.load_state_dict({})
    assert net.load_state_dict({}, strict=False).missing_keys == ["weight", "bias"]
    assert [name for name, _ in told(box)] == ["load failed", "state loaded", "load failed", "state loaded"]
    assert told(box)[0][1]["error"].startswith("FileNotFoundError: ")


def test_an_event_of_every_step_is_told_a_few_times(box, hooks):
    state = torch.get_rng_state()
    for _ in range(50):
        torch.set_rng_state(state)
    assert 1 <= len(told(box)) <= 4


def test_a_failure_of_ours_is_not_the_users(box, hooks, capsys):
    class Keys(dict):
        def __iter__(self):
            raise KeyError("of the script")

    net, other = nn.Linear(2, 2), nn.Linear(2, 2)
    net.load_state_dict(Keys(other.state_dict()))  # torch itself asks for each key by its name
    assert torch.equal(net.weight, other.weight)
    assert now() == ORIGINALS
    assert len(told(box, "hooks detached")) == 1
    assert "was disabled on this rank" in capsys.readouterr().err
