"""DDP602-604: a state dict that does not match the model, a file that another rank is still writing."""

from __future__ import annotations

import re

from ddpnb.rules.messages.explained import Explained, Raised, count, listing

_LOADING = re.compile(r"Error\(s\) in loading state_dict for (\w{1,100}):")
_MISSING = re.compile(r"Missing key\(s\) in state_dict: ([^\n]{1,150000})")
_UNEXPECTED = re.compile(r"Unexpected key\(s\) in state_dict: ([^\n]{1,150000})")
_SIZES = re.compile(
    r"size mismatch for ([^\s:]{1,200}): copying a param with shape (?:torch\.Size\()?([^\n]{1,100}?)\)? from checkpoint, the shape in current model is (?:torch\.Size\()?([^\n]{1,100}?)\)?\."
)
_KEY = re.compile(r'"([^"\n]{1,300})"')
_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_WHOLE = frozenset(
    {"model", "state_dict", "model_state_dict", "net", "module", "optimizer", "epoch", "optimizer_state_dict"}
)


def state_dict(raised: Raised) -> Explained | None:
    head = _LOADING.search(raised.text)
    if head is None:
        return None
    text = raised.text
    missing, unexpected = (_keys(pattern, text) for pattern in (_MISSING, _UNEXPECTED))
    resized = _SIZES.findall(text)
    if "got mixed torch.Tensor and DTensor" in text:
        return Explained(
            "DDP602",
            "A full state dict was loaded into a sharded model.",
            "torch.distributed.checkpoint.state_dict.set_model_state_dict(model, state, "
            "options=StateDictOptions(full_state_dict=True)).",
        )
    prefixed = _prefix(missing, unexpected)
    if prefixed is not None:
        return prefixed
    if missing and unexpected and not any("." in key for key in unexpected) and _WHOLE & set(unexpected):
        key = next((k for k in ("model", "state_dict", "model_state_dict", "net") if k in unexpected), unexpected[0])
        return Explained(
            "DDP602",
            f"A whole checkpoint ({listing(unexpected)}) was loaded as the model's state dict.",
            f'model.load_state_dict(checkpoint["{key}"])',
        )
    if resized and not missing and not unexpected:
        name, saved, wanted = resized[0]
        return Explained(
            "DDP602",
            f"{count(len(resized), 'parameter')} of the checkpoint {'has' if len(resized) == 1 else 'have'} a different size than "
            f"in the model: {name} is [{saved.strip('[]')}] in the file, [{wanted.strip('[]')}] in the model.",
            "Build the model with the arguments that it was saved with (save them in the checkpoint), or drop these keys "
            "and load with strict=False.",
            tuple(f"{n}: [{a.strip('[]')}] in the file, [{b.strip('[]')}] in the model." for n, a, b in resized[1:4]),
            tensors=tuple(name for name, _, _ in resized[:64]),
        )
    said = [
        f"only the model has {listing(missing, 4)}" if missing else "",
        f"only the file has {listing(unexpected, 4)}" if unexpected else "",
    ]
    return Explained(
        "DDP602",
        f"The checkpoint does not match this {head[1]}: {', '.join(filter(None, said)) or 'the keys differ'}.",
        "Build the model as it was when saved; strict=False loads matching keys and returns the others.",
        tensors=(*missing, *(name for name, _, _ in resized))[:64],
    )


def _keys(pattern: re.Pattern[str], text: str) -> list[str]:
    match = pattern.search(text)
    return _KEY.findall(match[1])[:20_000] if match else []


def _bare(key: str) -> str:
    return ".".join(part for part in key.split(".") if part not in _WRAPPERS)


def _leading(keys: list[str]) -> str:
    """The wrappers before the first name, if most keys have them: ``module._orig_mod.``"""
    for key in keys:
        parts = key.split(".")
        depth = next((i for i, part in enumerate(parts) if part not in _WRAPPERS), 0)
        prefix = ".".join(parts[:depth]) + "." if depth else ""
        if prefix and sum(other.startswith(prefix) for other in keys) * 2 > len(keys):
            return prefix
    return ""


def _prefix(missing: list[str], unexpected: list[str]) -> Explained | None:
    """The same keys except for the prefix of a wrapper on one side."""
    alike = {_bare(key) for key in missing} & {_bare(key) for key in unexpected}
    if not alike or len(alike) * 2 < min(len(missing), len(unexpected)):
        return None
    saved, wanted = _leading(unexpected), _leading(missing)
    if saved == wanted:
        return None
    evidence = (f"The file has {unexpected[0]}; the model expects {missing[0]}.",)
    if wanted and not saved:
        inner = "model" + "".join(f".{part}" for part in wanted.strip(".").split("."))
        return Explained(
            "DDP602",
            f'The model is wrapped and expects the prefix "{wanted}", which the keys of the checkpoint do not have.',
            f"Load into the wrapped module, or before wrapping: {inner}.load_state_dict(state)",
            evidence,
        )
    if saved and not wanted:
        inner = "model" + "".join(f".{part}" for part in saved.strip(".").split("."))
        return Explained(
            "DDP602",
            f'The checkpoint was saved from a wrapped model: its keys begin with "{saved}", but the model is not wrapped.',
            f'state = {{key.removeprefix("{saved}"): value for key, value in state.items()}}; next time save '
            f"{inner}.state_dict().",
            evidence,
        )
    return Explained(
        "DDP602",
        f'The checkpoint was saved with a different wrapper: its keys begin with "{saved}", the model expects "{wanted}".',
        f'state = {{"{wanted}" + key.removeprefix("{saved}"): value for key, value in state.items()}}; next time save the state '
        "dict of the wrapped module.",
        evidence,
    )


_OPTIMIZER = re.compile(
    r"loaded state dict (?:contains a parameter group that doesn't match the size of optimizer's group|has a different number of parameter groups)"
)
_DCP_KEY = re.compile(r"Missing key in checkpoint state_dict: ([^\s]{1,200}?)\.?(?:\s|$)")
_DCP_SIZE = re.compile(
    r"Size mismatch between saved (?:torch\.Size\()?([^\n]{1,100}?)\)? and current: (?:torch\.Size\()?([^\n]{1,100}?)\)? for (\S{1,200})"
)


def other_states(raised: Raised) -> Explained | None:
    text = raised.text
    if _OPTIMIZER.search(text):
        return Explained(
            "DDP602",
            "The optimizer state in the checkpoint is for different parameters than the optimizer has.",
            "Create the optimizer with the same parameters, in the same groups, as when it was saved: include frozen parameters "
            "or not in both, and build the model with the same arguments.",
        )
    if match := _DCP_KEY.search(text):
        return Explained(
            "DDP602",
            f"The distributed checkpoint has no {match[1]}, which the model requires.",
            "Save and load with get_model_state_dict and set_model_state_dict, which handle the prefixes of wrappers; "
            "planner=DefaultLoadPlanner(allow_partial_load=True) loads what is there.",
            tensors=(match[1],),
        )
    if match := _DCP_SIZE.search(text):
        return Explained(
            "DDP602",
            f"{match[3]} is {match[1]} in the distributed checkpoint, {match[2]} in the model.",
            "Build the model with the arguments that it was saved with.",
            tensors=(match[3],),
        )
    if "Attempting to deserialize object on" in text and "CUDA device" in text:
        return Explained(
            "DDP604",
            "The checkpoint's tensors are on a GPU that this process does not have.",
            'torch.load(path, map_location="cpu"), or map_location=f"cuda:{local_rank}".',
        )
    return None


_BROKEN = re.compile(
    r"PytorchStreamReader failed|unexpected EOF, expected \d{1,19} more bytes|pickle data was truncated|^Ran out of input$"
    r"|Error while deserializing header: (?:Metadata|Header|Invalid|incomplete|invalid|header)|filename 'storages' not found"
)
_LOADERS = ("torch/serialization", "torch/_weights_only_unpickler", "torch/distributed/checkpoint", "/pickle.py")
_LOADS = re.compile(r"\b(?:torch|pickle|dill|cloudpickle)\.load\(|load_checkpoint\(|safe_open\(|load_file\(")
_NAME = re.compile(r"\.(?:pt|pth|ckpt|bin|safetensors|distcp|pt2|tar|pkl)\b|\.metadata\b")
_FOLDER = re.compile(r"(?:check_?points?|ckpts?|snapshots?|weights)\b", re.IGNORECASE)
_NO_FILE = re.compile(r"No such file or directory: '([^'\n]{1,500})'(?: -> '([^'\n]{1,500})')?")
_EXISTS = re.compile(r"\[Errno 17\] File exists: '([^'\n]{1,500})'")
_REMOVES = re.compile(r"\b(?:remove|unlink|rmtree)\(")
_NO_FOLDER = re.compile(r"Parent directory (\S{1,500}) does not exist")


def race(raised: Raised) -> Explained | None:
    """DDP603: files that several ranks create, write and read without synchronisation."""
    text = raised.text
    if raised.exception in ("FileExistsError", "") and (match := _EXISTS.search(text)):
        return _exists(match[1], raised)
    loading = any(raised.passes(part) for part in _LOADERS) or _LOADS.search(raised.user_line) is not None
    if _BROKEN.search(text) or (
        loading
        and (
            (raised.exception == "EOFError" and text in ("", "Ran out of input"))
            or (raised.exception == "UnpicklingError" and "invalid load key" in text and "'v'" not in text)
            or (raised.exception == "error" and "unpack requires a buffer" in text)
            or (raised.exception == "OSError" and "[Errno 22]" in text and raised.passes("torch/serialization"))
        )
    ):
        return Explained(
            "DDP603",
            "The loaded file is incomplete: it was read while another rank wrote it, or its writer exited early.",
            "Write to a temporary file and rename it (os.replace), then dist.barrier(), then load; write on one rank only. A file "
            "that stays broken is truncated: use the previous one.",
        )
    if raised.exception == "FileNotFoundError" and (match := _NO_FILE.search(text)):
        return _absent(match[1], match[2] or "", loading, raised.user_line)
    if match := _NO_FOLDER.search(text):
        return Explained(
            "DDP603",
            f"The checkpoint's folder did not exist when it was written: {match[1]}.",
            "os.makedirs(folder, exist_ok=True) on every rank that writes.",
        )
    if "global metadata read failed" in text and "No such file or directory" in text:
        match = _NO_FILE.search(text)
        return _absent(match[1] if match else ".metadata", "", True)
    return None


def _exists(path: str, raised: Raised) -> Explained:
    line = raised.user_line
    if "symlink" in line or "link(" in line:
        remedy = "Create the link on one rank (if dist.get_rank() == 0), and let the others wait: dist.barrier()."
    elif "open(" in line and "mkdir" not in line and not raised.calls("mkdir", "makedirs"):
        remedy = 'Mode "x" is for one writer: open it on one rank only.'
    else:
        remedy = (
            f"os.makedirs({path!r}, exist_ok=True), or create it on rank 0 and let the others wait: dist.barrier()."
        )
    return Explained("DDP603", f"{path} exists already: another rank, or an earlier run, created it.", remedy)


def _absent(path: str, target: str, loading: bool, line: str = "") -> Explained | None:
    if target:
        return Explained(
            "DDP603",
            f"{path} no longer existed when this rank renamed it: several ranks write and rename the same file.",
            "Write on one rank only (if dist.get_rank() == 0), or use a different file name on each rank.",
        )
    folder, _, name = path.replace("\\", "/").rpartition("/")
    if not (_NAME.search(name) and (loading or _FOLDER.search(path))) and not (loading and _FOLDER.search(folder)):
        return None
    if _REMOVES.search(line):
        return Explained(
            "DDP603",
            f"{path} no longer existed when this rank removed it: several ranks remove the same files.",
            "Clean up on one rank only (if dist.get_rank() == 0), or path.unlink(missing_ok=True).",
        )
    return Explained(
        "DDP603",
        f"The file {path} did not exist when this rank read it.",
        "If another rank writes it: dist.barrier() between writing and reading, and use a folder that all machines share. If it "
        "should exist: compare the path and the working directory of the ranks.",
    )


RULES = (state_dict, other_states, race)
