"""DDP403, 412, 413, 416: what DistributedDataParallel says of a model when it is wrapped and used."""

from __future__ import annotations

import ast
import re
import warnings

from ddpnb.rules.messages.explained import Explained, Raised
from ddpnb.source.expressions import whole_text
from ddpnb.texts import shortened

_COUNT = re.compile(
    r"but Rank (\d{1,9}) has (\d{1,12}) params, while rank (\d{1,9}) has inconsistent (\d{1,12}) params"
)
_SHAPE = re.compile(
    r"(?:\[(\d{1,9})\]: )?(?:params\[(\d{1,9})\]|replicas\[\d{1,9}\]\[(\d{1,9})\]) in this process with sizes (\[[\d, ]{0,200}\]) "
    r"appears not to match (sizes|strides)"
)


def model_differs(raised: Raised) -> Explained | None:
    text = raised.text
    remedy = (
        "Build the same model on every rank: from the same configuration and the same counts (classes, vocabulary), not "
        "from a rank's own data, device or files."
    )
    if match := _COUNT.search(text):
        (first, few), (second, many) = sorted([(int(match[1]), match[2]), (int(match[3]), match[4])])
        return Explained(
            "DDP403",
            f"The models differ: rank {first} has {few} parameters, rank {second} has {many}.",
            remedy,
            culprits=(int(match[3]),),
        )
    if match := _SHAPE.search(text):
        place = int(match[2] or match[3])
        name = str(raised.names[place]).removeprefix("module.") if place < len(raised.names) else ""
        what = "sizes" if match[5] == "sizes" else "memory layout (strides)"
        return Explained(
            "DDP403",
            f"The models differ: {name or f'parameter number {place}'}, here {match[4]}, has different {what} on rank 0.",
            remedy,
            culprits=(int(match[1]),) if match[1] else None,
            tensors=(name,) if name else (),
        )
    if "Modules with uninitialized parameters can't be used with" in text:
        return Explained(
            "DDP403",
            "The model has lazy layers whose sizes are not known yet.",
            "Run one batch through it before wrapping, of the same shape on every rank.",
        )
    return None


def batch_norm(raised: Raised) -> Explained | None:
    text = raised.text
    if re.search(r"SyncBatchNorm (?:layers only work with GPU|expected input tensor to be on)", text):
        return Explained(
            "DDP412",
            "SyncBatchNorm works on GPUs only, but the model is on the CPU.",
            'Convert where there is a GPU: if device.type == "cuda": model = '
            "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), before wrapping and on every rank.",
        )
    if "SyncBatchNorm is only supported within torch.nn.parallel.DistributedDataParallel" in text:
        return Explained(
            "DDP412",
            "SyncBatchNorm is used without DistributedDataParallel around it.",
            "Convert, then wrap: model = DistributedDataParallel(torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)).",
        )
    return None


_WRAPPERS = r"(DistributedDataParallel|DataParallel|FullyShardedDataParallel|DeepSpeedEngine)"
_HIDDEN = re.compile(rf"'{_WRAPPERS}' object has no attribute '(\w{{1,200}})'")
_UNWRAPPED = re.compile(r"'(\w{1,200})' object has no attribute 'module'")


def hidden_attribute(raised: Raised) -> Explained | None:
    if "DDP Pickling/Unpickling are only supported when using DDP with the default process group" in raised.text:
        return Explained(
            "DDP413",
            "The wrapper itself is pickled, with its process group, which no other process can use.",
            "Save the wrapped module: torch.save(model.module.state_dict(), path).",
        )
    if raised.exception not in ("AttributeError", ""):
        return None
    if match := _HIDDEN.search(raised.text):
        wrapper, name = match.groups()
        inner = _through(raised.user_line, name)
        return Explained(
            "DDP413",
            f"{name} is an attribute of the model; the wrapper {wrapper} does not expose it.",
            f"Write {inner}. But call the wrapper for the forward pass: other methods that call layers "
            "do not synchronise gradients.",
        )
    if (match := _UNWRAPPED.search(raised.text)) and raised.passes("torch/nn/modules/module"):
        return Explained(
            "DDP413",
            f"The code uses .module, but this {match[1]} is not wrapped here.",
            'Write getattr(model, "module", model), which works for both.',
        )
    return None


_KEY = re.compile(r"'((?:[A-Za-z_]\w{0,80}\.|\d{1,6}\.){1,20}\w{1,80})'")


def prefixed_key(raised: Raised) -> Explained | None:
    """A KeyError for a parameter that the model has, but under the wrapper's name: ``state["fc.weight"]``."""
    match = _KEY.fullmatch(raised.text) if raised.exception == "KeyError" else None
    frame = raised.user_frame
    if match is None or frame is None or raised.frames[-1] is not frame:
        return None
    key, source = match[1], raised.sources.get(frame.file, "")
    bare = key.removeprefix("module.")
    named = any(str(name).removeprefix("module.") == bare for name in raised.names)
    wrapper = any("DistributedDataParallel" in text for text in frame.locals.values())
    if not named and not (wrapper and key in raised.user_line and "state_dict()" in source):
        return None
    if key != bare:
        return Explained(
            "DDP602",
            f"The state dict has {bare}, not {key}: it was saved from an unwrapped model.",
            f'Take the key without the prefix: state["{bare}"].',
            tensors=(bare,),
        )
    return Explained(
        "DDP602" if "torch.load(" in source else "DDP413",
        f"The state dict was taken from the wrapper: it has module.{key}, not {key}.",
        "model.module.state_dict() has the keys without the prefix.",
        tensors=(key,),
    )


def _through(line: str, name: str) -> str:
    """The user's own expression with ``.module`` in it: ``self.model.module.generate``."""
    line = line.strip()[:2000]
    for text in (line, f"{line} pass", f"{line.removeprefix('el')} pass"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr == name:
                return f"{whole_text(node.value)}.module.{name}"
    match = re.search(rf"([\w.]{{1,200}})\.{re.escape(name)}\b", line)
    return f"{match[1] if match else 'model'}.module.{name}"


_HOOK_RETURN = re.compile(
    r"DDP communication hook's callback must return a torch\.futures\.Future object, but got ([\w.]{1,80})"
)


def hook(raised: Raised) -> Explained | None:
    text = raised.text
    if match := _HOOK_RETURN.search(text):
        return Explained(
            "DDP416",
            f"The communication hook returned a {match[1]}, but DDP requires a future.",
            "return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / world_size)",
        )
    if "register_comm_hook or register_builtin_comm_hook can only be called once" in text:
        return Explained(
            "DDP416", "A second communication hook was registered.", "Register one hook per model: combine the two."
        )
    if re.search(
        r"Communication hook(?: must be callable|: (?:bucket|return) annotation)|communication hook required", text
    ):
        return Explained(
            "DDP416",
            f"DDP rejects this communication hook: {shortened(text.splitlines()[0], 200).rstrip('.')}.",
            "def hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor], the same on every rank.",
        )
    return None


RULES = (model_differs, batch_norm, hidden_attribute, prefixed_key, hook)
