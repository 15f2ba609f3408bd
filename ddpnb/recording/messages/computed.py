"""What entries of errors.toml compute (``compute``): more values from those of their patterns, None where an entry does not apply."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from typing import Any

from ddpnb.recording.findings import Hint
from ddpnb.recording.messages import unused
from ddpnb.recording.messages.explained import Raised
from ddpnb.recording.messages.fingerprints import sides
from ddpnb.recording.messages.sentences import Values, listing, numbers
from ddpnb.recording.source.expressions import whole_text

Computed = dict[str, Any] | None


# -- calls, devices, memory


def fingerprints(raised: Raised, _: Values) -> Computed:
    """In what the calls of two ranks differ."""
    calls = sides(raised.text)
    if len(calls) < 2:
        return {"differ": "unknown", "first_call": "".join(map(str, calls))}
    first, second = sorted(calls, key=lambda call: call.rank)
    kinds = {
        "operation": first.op != second.op,
        "shape": first.shape != second.shape,
        "dtype": first.dtype != second.dtype,
        "else": "Tensor devices:" in raised.text,
        "number": first.seq != second.seq,
    }
    values: dict[str, Any] = {"differ": next((kind for kind, differs in kinds.items() if differs), "")}
    for prefix, call in (("", first), ("other_", second)):
        values |= {prefix + name: str(getattr(call, name)) for name in ("op", "shape", "dtype", "seq")}
    same = "yes" if first.seq == second.seq else ""
    return values | {
        "first": str(first.rank), "second": str(second.rank), "first_call": str(first), "second_call": str(second), "same_number": same,
    }  # fmt: skip


def devices(_: Raised, values: Values) -> Computed:
    """The devices on which the parameters are: ``cuda:0``."""
    places = set(re.findall(r"type='(\w{1,20})'(?:, index=(\d{1,4}))?", values.get("devices", "")))
    return {"places": [kind + (f":{index}" if index else "") for kind, index in places]}


def neighbours(raised: Raised, _: Values) -> Computed:
    """The other processes on the same GPU."""
    held = re.findall(r"Process (\d{1,10}) has ([\d.]{1,20} ?\w{1,5}) memory in use", raised.text)
    return {"neighbours": [f"Process {pid} holds {memory}" for pid, memory in held]}


def forking(raised: Raised, _: Values) -> Computed:
    starts = raised.calls("fork", "_launch", "_fork_exec", "_execute_child", "spawnv_passfds", "Popen")
    return {} if starts or "fork(" in raised.user_line else None


# -- checkpoints

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


def state_dict(raised: Raised, _: Values) -> Computed:
    """In what the keys and sizes of a checkpoint differ from those of the model."""
    missing, unexpected = (_keys(pattern, raised.text) for pattern in (_MISSING, _UNEXPECTED))
    resized = [(name, saved.strip("[]"), wanted.strip("[]")) for name, saved, wanted in _SIZES.findall(raised.text)]
    if prefixed := _prefix(missing, unexpected):
        return prefixed
    if missing and unexpected and not any("." in key for key in unexpected) and _WHOLE & set(unexpected):
        key = next((k for k in ("model", "state_dict", "model_state_dict", "net") if k in unexpected), unexpected[0])
        return {"kind": "whole checkpoint", "unexpected": unexpected, "key": key}
    names = [name for name, _, _ in resized][:64]
    if resized and not missing and not unexpected:
        name, saved, wanted = resized[0]
        others = [f"{name}: [{saved}] in the file, [{wanted}]" for name, saved, wanted in resized[1:4]]
        return {
            "kind": "sizes",
            "number": len(resized),
            "name": name,
            "saved": saved,
            "wanted": wanted,
            "others": others,
            "names": names,
        }
    return {"lacking": missing, "unexpected": unexpected, "names": [*missing, *names][:64]}


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


def _prefix(missing: list[str], unexpected: list[str]) -> Computed:
    """The same keys except for the prefix of a wrapper on one side."""
    alike = {_bare(key) for key in missing} & {_bare(key) for key in unexpected}
    saved, wanted = _leading(unexpected), _leading(missing)
    if not alike or len(alike) * 2 < min(len(missing), len(unexpected)) or saved == wanted:
        return None
    return {
        "kind": "wrapped model" if not saved else "wrapped file" if not wanted else "other wrapper",
        "saved": saved,
        "wanted": wanted,
        "inner": f"model.{saved or wanted}".rstrip("."),
        "file_key": unexpected[0],
        "model_key": missing[0],
    }  # fmt: skip


_LOADERS = re.compile(r"torch/(?:serialization|_weights_only_unpickler|distributed/checkpoint)|/pickle\.py")
_LOADS = re.compile(r"\b(?:torch|pickle|dill|cloudpickle)\.load\(|load_checkpoint\(|safe_open\(|load_file\(")
_NAME = re.compile(r"\.(?:pt|pth|ckpt|bin|safetensors|distcp|pt2|tar|pkl)\b|\.metadata\b")
_FOLDER = re.compile(r"(?:check_?points?|ckpts?|snapshots?|weights)\b", re.IGNORECASE)
_REMOVES = re.compile(r"\b(?:remove|unlink|rmtree)\(")


def loading(raised: Raised, _: Values) -> Computed:
    """Whether a file of torch or pickle is loaded: an EOFError of anybody's is no broken checkpoint."""
    return {} if raised.passes(_LOADERS) or _LOADS.search(raised.user_line) else None


def absent_file(raised: Raised, values: Values) -> Computed:
    """What was done with a checkpoint that is not there; None for any other file."""
    if values.get("target"):
        return {"kind": "renamed"}
    path = values["path"]
    loads = loading(raised, values) is not None
    folder, _, name = path.replace("\\", "/").rpartition("/")
    if not (_NAME.search(name) and (loads or _FOLDER.search(path))) and not (loads and _FOLDER.search(folder)):
        return None
    return {"kind": "removed" if _REMOVES.search(raised.user_line) else "read"}


# -- models


_MOST_PARAMETERS = 10_000_000  # tensors of a model: a number above was never one


def counts(_: Raised, values: Values) -> Computed:
    """The numbers of parameters, the lower rank first."""
    pairs = [(int(values["raised"]), values["raised_count"]), (int(values["odd"]), values["odd_count"])]
    (rank, count), (other, other_count) = sorted(pairs)
    plausible = "yes" if 0 < int(values["odd_count"]) < _MOST_PARAMETERS else ""
    return {"rank": rank, "count": count, "other": other, "other_count": other_count, "plausible": plausible}


def parameter(raised: Raised, values: Values) -> Computed:
    """The name of a parameter of which the message gives the number, as far as the names are known."""
    index = int(values.get("index", -1))
    named = str(raised.names[index]) if 0 <= index < len(raised.names) else ""
    return {"name": (values.get("name") or named).removeprefix("module.")}


def without_gradient(raised: Raised, values: Values) -> Computed:
    """Which parameters got no gradient, and why, as far as the source shows it."""
    indices = numbers(values.get("indices", ""))
    tensors = _names(raised, indices, values.get("names", ""))
    lines = unused.frozen_after_wrapping(tensors, raised.sources)
    froze = Hint(*lines[0], "this line may have frozen them") if len(lines) == 1 else None
    # A recording names some of very many.
    recorded = tensors and raised.frozen and (set(tensors) <= set(raised.frozen) or set(raised.frozen) <= set(tensors))
    static = "static_graph set to True" in raised.text
    return {
        "tensors": tensors,
        "parameters": _parameters(tensors, indices),
        "frozen": "recorded" if recorded else "",
        "unused": "" if froze else "yes",
        "unnamed": "yes" if indices and not tensors else "",
        "hint": None if static else froze or (None if recorded else unused.use(tensors, raised.sources)),
    }


def _names(raised: Raised, indices: tuple[int, ...], named: str) -> tuple[str, ...]:
    names = tuple(name.strip().removeprefix("module.") for name in named.split(",") if name.strip())[:10_000]
    if names:
        order = {name: i for i, name in enumerate(raised.names)}
        return tuple(sorted(names, key=lambda name: order.get(name, len(order)))) if order else names[::-1]
    if indices and indices[-1] < len(raised.names):
        return tuple(str(raised.names[index]).removeprefix("module.") for index in indices)
    return ()


def _parameters(tensors: Sequence[str], indices: Sequence[int]) -> str:
    if len(tensors) > 4:
        return f"{len(tensors)} parameters (of {listing(unused.modules(tensors), 4)})"
    if tensors or not indices:
        return listing(tensors) or "Parameters of the model"
    consecutive = len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1
    numbered = f"{indices[0]}-{indices[-1]}" if consecutive else listing(indices)
    return f"{len(indices)} parameter{'s' * (len(indices) != 1)} (number {numbered})"


def through_wrapper(raised: Raised, values: Values) -> Computed:
    """The user's own expression with ``.module`` in it: ``self.model.module.generate``."""
    line, name = raised.user_line.strip()[:2000], values["name"]
    for text in (line, f"{line} pass", f"{line.removeprefix('el')} pass"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr == name:
                return {"inner": f"{whole_text(node.value)}.module.{name}"}
    match = re.search(rf"([\w.]{{1,200}})\.{re.escape(name)}\b", line)
    return {"inner": f"{match[1] if match else 'model'}.module.{name}"}


def prefixed_key(raised: Raised, values: Values) -> Computed:
    """A KeyError for a parameter that the model has, but under the wrapper's name: ``state["fc.weight"]``."""
    frame, key = raised.user_frame, values["key"]
    if frame is None or raised.frames[-1] is not frame:
        return None
    source, bare = raised.sources.get(frame.file, ""), key.removeprefix("module.")
    named = any(str(name).removeprefix("module.") == bare for name in raised.names)
    wrapper = any("DistributedDataParallel" in text for text in frame.locals.values())
    if not named and not (wrapper and key in raised.user_line and "state_dict()" in source):
        return None
    return {"bare": bare, "kind": "prefixed" if key != bare else "loaded" if "torch.load(" in source else "own"}
