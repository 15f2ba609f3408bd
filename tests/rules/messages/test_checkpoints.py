from __future__ import annotations

import pytest

from ddpnb.rules.messages.explain import explain
from tests.rules.messages.told import inside, told, user

NAMES = ("body.weight", "body.bias", "head.weight", "head.bias")
LOAD = inside("torch/serialization.py", "load", 1626)
MANY = 30_000


def error(model: str, missing: tuple[str, ...] = (), unexpected: tuple[str, ...] = (), *more: str) -> str:
    """As ``load_state_dict`` writes it."""
    lines = [f"Error(s) in loading state_dict for {model}:"]
    for word, keys in (("Missing", missing), ("Unexpected", unexpected)):
        if keys:
            lines.append(f"\t{word} key(s) in state_dict: {', '.join(f'{chr(34)}{key}{chr(34)}' for key in keys)}. ")
    return "\n".join([*lines, *more])


def under(prefix: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in NAMES)


def resized(name: str, saved: str, wanted: str) -> str:
    return (
        f"\tsize mismatch for {name}: copying a param with shape torch.Size([{saved}]) from checkpoint, the shape in current "
        f"model is torch.Size([{wanted}])."
    )


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_a_checkpoint_of_a_wrapped_model(prefix):
    found = told(error("Net", NAMES, under(prefix)))
    assert found.code == "DDP602"
    assert f'its keys begin with "{prefix}"' in found.summary
    assert f'key.removeprefix("{prefix}")' in found.remedy
    assert f"model.{prefix}state_dict()" in found.remedy


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_a_wrapped_model_and_a_bare_checkpoint(prefix):
    found = told(error("DistributedDataParallel", under(prefix), NAMES))
    assert found.code == "DDP602"
    assert f'expects the prefix "{prefix}"' in found.summary
    assert f"model.{prefix}load_state_dict(state)" in found.remedy


def test_a_checkpoint_of_another_wrapping():
    found = told(error("OptimizedModule", under("_orig_mod."), under("module.")))
    assert 'begin with "module.", the model expects "_orig_mod."' in found.summary
    assert '"_orig_mod." + key.removeprefix("module.")' in found.remedy


def test_the_prefix_is_seen_among_keys_that_differ_otherwise():
    found = told(error("Net", (*NAMES, "new.weight"), (*under("module."), "module.old.weight")))
    assert '"module."' in found.summary


def test_a_name_that_is_only_like_a_prefix_is_none():
    found = told(error("Net", ("module_list.0.weight",), ("modules.0.weight",)))
    assert "begin with" not in found.summary


def test_a_message_that_was_cut_is_read_as_far_as_it_goes():
    keys = tuple(f"layers.{i}.weight" for i in range(200))
    text = error("Net", keys, tuple(f"module.{key}" for key in keys))
    assert '"module."' in told(text[:9000]).summary


def test_a_message_of_many_keys_is_read_in_bounds():
    keys = tuple(f"layers.{i}.weight" for i in range(MANY))
    assert told(error("Net", (), keys)).code == "DDP602"


def test_a_whole_checkpoint_loaded_as_a_state_dict():
    found = told(error("Net", NAMES, ("epoch", "model_state_dict", "optimizer")))
    assert "whole checkpoint" in found.summary
    assert found.remedy == 'model.load_state_dict(checkpoint["model_state_dict"])'


def test_sizes_that_differ_are_given_with_both_sides():
    found = told(error("Net", (), (), resized("head.weight", "2, 4", "3, 4"), resized("head.bias", "2", "3")))
    assert found.code == "DDP602"
    assert "head.weight is [2, 4] in the file, [3, 4] in the model" in found.summary
    assert "head.bias: [2] in the file, [3] in the model." in found.evidence
    assert found.tensors == ("head.weight", "head.bias")


def test_another_model():
    found = told(error("Net", ("extra.weight",), ("gone.weight",)))
    assert found.code == "DDP602"
    assert "extra.weight" in found.summary
    assert "gone.weight" in found.summary
    assert found.tensors == ("extra.weight",)


def test_a_full_state_dict_for_a_sharded_model():
    found = told(
        error("FSDPNet")
        + '\tWhile copying the parameter named "body.weight", whose dimensions in the model are torch.Size([4, 4]) '
        "and whose dimensions in the checkpoint are torch.Size([4, 4]), an exception occurred : ('aten.copy_.default got mixed "
        "torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!',)."
    )
    assert found.code == "DDP602"
    assert "full_state_dict=True" in found.remedy


@pytest.mark.parametrize(
    ("message", "exception"),
    [
        ("loaded state dict contains a parameter group that doesn't match the size of optimizer's group", "ValueError"),
        ("loaded state dict has a different number of parameter groups", "ValueError"),
        ("Missing key in checkpoint state_dict: optimizer.state.lr.", "RuntimeError"),
        ("Size mismatch between saved torch.Size([2]) and current: torch.Size([3]) for lr", "ValueError"),
    ],
)
def test_states_of_optimizers_and_of_distributed_checkpoints(message, exception):
    assert told(message, exception).code == "DDP602"


def test_a_distributed_checkpoint_names_the_ranks_that_failed():
    message = """\
CheckpointException ranks:dict_keys([1, 3])
Traceback (most recent call last): (RANK 1)
  File "/venv/lib/python3.11/site-packages/torch/distributed/checkpoint/default_planner.py", line 495, in create_plan
    raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")
RuntimeError: Missing key in checkpoint state_dict: head.weight.
Traceback (most recent call last): (RANK 3)
  File "/venv/lib/python3.11/site-packages/torch/distributed/checkpoint/default_planner.py", line 495, in create_plan
    raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")
RuntimeError: Missing key in checkpoint state_dict: head.weight.
"""
    found = told(message, "CheckpointException")
    assert (found.code, found.culprits, found.tensors) == ("DDP602", (1, 3), ("head.weight",))


@pytest.mark.parametrize(
    "message",
    [
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
        "Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1.",
    ],
)
def test_a_checkpoint_of_another_device(message):
    found = told(message)
    assert found.code == "DDP604"
    assert "map_location" in found.remedy


# -- files


@pytest.mark.parametrize(
    ("message", "exception"),
    [
        (
            "PytorchStreamReader failed reading zip archive: failed finding central directory. This is an internal miniz error.",
            "RuntimeError",
        ),
        (
            "PytorchStreamReader failed reading file .format_version: invalid header or archive is corrupted.",
            "RuntimeError",
        ),
        ("unexpected EOF, expected 20 more bytes. The file might be corrupted.", "RuntimeError"),
        ("pickle data was truncated", "UnpicklingError"),
        ("Ran out of input", "EOFError"),
        ("\"filename 'storages' not found\"", "KeyError"),
        ("Error while deserializing header: MetadataIncompleteBuffer", "SafetensorError"),
    ],
)
def test_a_file_that_is_incomplete(message, exception):
    found = told(message, exception)
    assert found.code == "DDP603"
    assert "os.replace" in found.remedy


@pytest.mark.parametrize(
    ("message", "exception"),
    [
        ("", "EOFError"),
        ("invalid load key, '\\x00'.", "UnpicklingError"),
        ("unpack requires a buffer of 4 bytes", "error"),
        ("[Errno 22] Invalid argument", "OSError"),
    ],
)
def test_words_of_anybodys_are_a_broken_file_only_where_one_is_loaded(message, exception):
    assert told(message, exception, user(), LOAD).code == "DDP603"
    if exception != "OSError":
        assert told(message, exception, user(2), source="import torch\nstate = torch.load(path)\n").code == "DDP603"
    assert explain(message, exception, frames=[user()]) is None


def test_what_is_no_checkpoint_at_all_is_not_incomplete():
    pointer = "invalid load key, 'v'."  # the text that stands for a file in a repository
    assert explain(pointer, "UnpicklingError", frames=[user(), LOAD]) is None
    refused = (
        "Weights only load failed. WeightsUnpickler error: Unsupported global: GLOBAL net.Net was not an allowed global"
    )
    assert explain(refused, "UnpicklingError", frames=[user(), LOAD]) is None
    assert explain("EOF when reading a line", "EOFError", frames=[user()]) is None


EXISTS = "[Errno 17] File exists: 'runs/exp1'"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os\nos.makedirs('runs/exp1')\n", "os.makedirs('runs/exp1', exist_ok=True)"),
        ("import os\nos.symlink(new, 'runs/exp1')\n", "link"),
        ("import os\nlock = open('runs/exp1', 'x')\n", "open it on one rank only"),
        ("", "exist_ok=True"),
    ],
)
def test_what_another_rank_made_first(source, words):
    found = told(EXISTS, "FileExistsError", user(2), source=source)
    assert found.code == "DDP603"
    assert "runs/exp1 exists already" in found.summary
    assert words in found.remedy


@pytest.mark.parametrize(
    "path", ["checkpoints/last.pt", "/scratch/ckpt/step_100/model.safetensors", "out/checkpoint-500/optimizer.bin"]
)
def test_a_checkpoint_that_is_not_there(path):
    found = told(f"[Errno 2] No such file or directory: '{path}'", "FileNotFoundError", user())
    assert found.code == "DDP603"
    assert path in found.summary
    assert "dist.barrier()" in found.remedy


def test_a_file_of_any_name_is_a_checkpoint_if_torch_loads_it():
    message = "[Errno 2] No such file or directory: 'out/last.pt'"
    assert told(message, "FileNotFoundError", user(), LOAD).code == "DDP603"
    assert explain(message, "FileNotFoundError", frames=[user()]) is None


@pytest.mark.parametrize(
    "path", ["data/train.csv", "config.yaml", "/data/images/0001.jpg", "checkpoints/notes.txt", "weights/classes.json"]
)
def test_any_other_file_that_is_not_there_is_the_users(path):
    assert explain(f"[Errno 2] No such file or directory: '{path}'", "FileNotFoundError", frames=[user()]) is None


def test_several_ranks_rename_one_file():
    message = "[Errno 2] No such file or directory: 'out/last.pt.tmp' -> 'out/last.pt'"
    assert "several ranks" in told(message, "FileNotFoundError").summary


def test_a_folder_that_nobody_made():
    assert told("Parent directory out/run3 does not exist.").code == "DDP603"
    message = (
        "metadata is None; global metadata read failed: [Errno 2] No such file or directory: 'dcp/.metadata'; rank local "
        "metadata read failed: [Errno 2] No such file or directory: 'dcp/__0.metadata'"
    )
    assert told(message, "AssertionError").code == "DDP603"


def test_several_ranks_remove_the_same_checkpoints():
    source = "import os\nos.remove(old)\n"
    found = told("[Errno 2] No such file or directory: 'ckpt/epoch-0.pt'", "FileNotFoundError", user(2), source=source)
    assert (found.code, "several ranks remove" in found.summary) == ("DDP603", True)
