"""Events of a training script: what it does to model and state outside of the collectives. Real torch."""

from __future__ import annotations

import inspect
import os
import pickle
import random
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpnb.recorder.events.hooks import put_in_place
from ddpnb.recorder.events.training import Training
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.events import Event
from ddpnb.recording.events.models import (
    AttributeOnWrapper,
    CheckpointRead,
    CheckpointSaved,
    CommHook,
    LoadFailed,
    ParametersIgnored,
    RngRestored,
    StateLoaded,
    SyncBatchNormConverted,
)
from ddpnb.recording.events.runs import HooksDetached, ProcessEnds, SeedSet

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
    put_in_place(found)
    yield found
    found.remove()
    assert now() == ORIGINALS


def recorded(box, kind=Event):
    """The events of this kind, without their places and times."""
    found = BoxReader(box.memory).events()
    assert kind is HooksDetached or not [event for event in found if isinstance(event, HooksDetached)]
    return [replace(e, site=NO_SITE, began_ns=0, ended_ns=0) for e in found if isinstance(e, kind)]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (torch, "save"), (torch, "load"), (torch, "manual_seed"), (torch, "set_rng_state"), (torch.cuda, "set_rng_state"),
        (os, "_exit"), (os, "abort"), (os, "kill"), (random, "setstate"),
    ],
)  # fmt: skip
def test_what_is_replaced_is_pickled_by_name(box, module, name):
    """As what a spawned process runs. Most are defined in another module, where they must be the same object."""

    def is_pickled():
        function = getattr(module, name)
        try:
            return pickle.loads(pickle.dumps(function)) is function
        except pickle.PicklingError:  # torch.manual_seed, once the compiler has its own
            return False

    before, replaced = is_pickled(), Training(box)
    put_in_place(replaced)
    try:
        assert is_pickled() >= before  # what is a method of a hidden object even is from then on
    finally:
        replaced.remove()


def test_what_a_wrapper_is_told_to_leave_alone(box, hooks):
    net = Net()
    original = inspect.getattr_static(DDP, "_set_params_and_buffers_to_ignore_for_model")
    assert isinstance(original, staticmethod)
    DDP._set_params_and_buffers_to_ignore_for_model(net, ["0.weight", "1.running_mean"])
    assert net._ddp_params_and_buffers_to_ignore == ["0.weight", "1.running_mean"]
    assert recorded(box, ParametersIgnored) == [ParametersIgnored(names=("0.weight", "1.running_mean"), count=2)]
    hooks.remove()
    assert inspect.getattr_static(DDP, "_set_params_and_buffers_to_ignore_for_model") is not original


def test_states_of_generators_in_a_checkpoint(box, hooks, tmp_path):
    numpy = pytest.importorskip("numpy")
    checkpoint = {
        "a": torch.get_rng_state(),
        "b": {"python": random.getstate()},
        "c": numpy.random.get_state(),
        "d": numpy.random.default_rng(0).bit_generator.state,
        "e": [torch.zeros(16, dtype=torch.uint8)],
        "rng_seed": 7, "mask": torch.zeros(40, dtype=torch.uint8), "model": {"weight": torch.ones(16)}, "best": (1, 2, 3),
    }  # fmt: skip
    torch.save(checkpoint, tmp_path / "last.pt")
    torch.load(tmp_path / "last.pt", weights_only=False)
    (read,) = recorded(box, CheckpointRead)
    assert read.generators == ("a", "b", "c", "d", "e")


def test_seeds_that_the_script_sets(box, hooks):
    torch.manual_seed(7)
    with torch.random.fork_rng():
        pass
    assert recorded(box, SeedSet) == [SeedSet(seed=7)]
    assert torch.initial_seed() == 7


def test_seeds_once_the_compiler_has_its_own_function(box, hooks, monkeypatch):
    """It is imported by the first optimizer: in a second run it calls ``manual_seed`` for the script."""
    monkeypatch.setattr(torch, "manual_seed", torch._disable_dynamo(torch.manual_seed))
    torch.manual_seed(7)
    assert recorded(box, SeedSet) == [SeedSet(seed=7)]


def test_checkpoints(box, hooks, tmp_path):
    net, path = nn.Linear(2, 2), tmp_path / "epoch3.pt"
    torch.save({"model": net.state_dict(), "epoch": 3, "done": True, "loss": 0.5}, path)
    again = torch.load(path)
    net.load_state_dict(again["model"])
    keys = ("model", "epoch", "done", "loss")
    assert recorded(box) == [
        CheckpointSaved(path=str(path), keys=keys),
        CheckpointRead(path=str(path), keys=keys, numbers={"epoch": 3}),
        StateLoaded(what="model", class_name="Linear", keys=("weight", "bias")),
    ]
    site = BoxReader(box.memory).events()[0].site
    lines, start = inspect.getsourcelines(test_checkpoints)
    saved = start + next(n for n, text in enumerate(lines) if "torch.save" in text)
    assert (site.file, site.line) == (__file__, saved)


def test_a_checkpoint_in_memory(box, hooks):
    import io

    file = io.BytesIO()
    torch.save([1, 2], file)
    file.seek(0)
    assert torch.load(file) == [1, 2]
    assert recorded(box) == [CheckpointSaved(path="BytesIO"), CheckpointRead(path="BytesIO")]


def test_states_of_optimizer_and_scaler(box, hooks):
    optimizer = torch.optim.Adam(nn.Linear(2, 2).parameters())
    optimizer.load_state_dict(optimizer.state_dict())
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(scaler.state_dict())
    assert recorded(box) == [
        StateLoaded(what="optimizer", class_name="Adam"),
        StateLoaded(what="scaler", class_name="GradScaler"),
    ]


def test_random_states(box, hooks):
    torch.set_rng_state(torch.get_rng_state())
    random.setstate(random.getstate())
    assert recorded(box) == [RngRestored()] * 2


@pytest.mark.usefixtures("alone")
def test_communication_hooks(box, hooks):
    DDP(Net()).register_comm_hook(None, default_hooks.fp16_compress_hook)
    DDP(Net())._register_builtin_comm_hook(torch.distributed.BuiltinCommHookType.FP16_COMPRESS)
    first, second = recorded(box, CommHook)
    assert first.hook.endswith("default_hooks.fp16_compress_hook") and first.state_class == "NoneType"
    assert "FP16_COMPRESS" in second.hook


@pytest.mark.usefixtures("alone")
def test_conversion_is_told_once_for_the_whole_model(box, hooks):
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(Net(), Net()))
    assert isinstance(net[0][1], nn.SyncBatchNorm)
    nn.SyncBatchNorm.convert_sync_batchnorm(DDP(Net()))
    nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(2, 2)))  # nothing to convert
    assert recorded(box, SyncBatchNormConverted) == [
        SyncBatchNormConverted(layers=2),
        SyncBatchNormConverted(wrapped=True, layers=1),
    ]


@pytest.mark.usefixtures("alone")
def test_attributes_that_are_set_on_the_wrapper_instead_of_the_model(box, hooks):
    model = DDP(Net())
    model.own = 1
    model.train()
    model(torch.ones(3, 4)).sum().backward()
    assert recorded(box, AttributeOnWrapper) == []
    model.epoch = 5
    model.epoch = 6
    assert recorded(box, AttributeOnWrapper) == [AttributeOnWrapper(name="epoch")]
    assert (model.epoch, model.module.epoch) == (6, 0)
    hooks.new_run()
    other = DDP(Net())
    other.epoch = 1
    assert len(recorded(box, AttributeOnWrapper)) == 2


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
    (hook,) = recorded(box, CommHook)
    assert hook.settings == {"dtype": "torch.bfloat16", "rank": "1", "start": "10"}


def test_a_state_that_is_loaded_without_being_strict(box, hooks):
    net, state = nn.Linear(2, 2), {"module.weight": torch.ones(2, 2), "bias": torch.ones(2)}
    net.load_state_dict(state, strict=False)
    net.load_state_dict(state, False)
    net.load_state_dict(net.state_dict())
    first, second, strict = recorded(box, StateLoaded)
    assert (first.matched, first.given) == (second.matched, second.given) == (1, 2)
    assert strict.matched is None


LEAVING = """
import os, signal, sys
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.events.training import Training

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
def test_the_line_by_which_a_process_ends_itself(tmp_path, forked, leave, status):
    script, box = tmp_path / "leaves.py", tmp_path / "rank0.box"
    script.write_text(LEAVING.format(leave=leave))
    done = forked.run(script.read_text(), box, name=str(script))
    assert done.returncode == status, done.stderr
    (found,) = [event.site for event in BoxReader(box.read_bytes()).events() if isinstance(event, ProcessEnds)]
    assert (found.file, found.line) == (str(script), LEAVING.count("\n"))


def test_errors_and_results_are_torchs(box, hooks, tmp_path):
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "none.pt")
    net = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="Missing key"):
        net.load_state_dict({})
    assert net.load_state_dict({}, strict=False).missing_keys == ["weight", "bias"]
    assert [type(event) for event in recorded(box)] == [LoadFailed, StateLoaded, LoadFailed, StateLoaded]
    assert recorded(box)[0].error.startswith("FileNotFoundError: ")


def test_an_event_of_every_step_is_told_a_few_times(box, hooks):
    state = torch.get_rng_state()
    for _ in range(50):
        torch.set_rng_state(state)
    assert 1 <= len(recorded(box)) <= 4


def test_a_failure_of_ours_is_not_the_users(box, hooks, capsys):
    class Keys(dict):
        def __iter__(self):
            raise KeyError("of the script")

    net, other = nn.Linear(2, 2), nn.Linear(2, 2)
    net.load_state_dict(Keys(other.state_dict()))  # torch itself asks for each key by its name
    assert torch.equal(net.weight, other.weight)
    assert now() == ORIGINALS
    assert len(recorded(box, HooksDetached)) == 1
    assert "was disabled on this rank" in capsys.readouterr().err
