"""The table of private and version-bound names of torch: it names each use, and this torch has what it says."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import sys
import types
from collections import defaultdict
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.algorithms.join
import torch.distributed.tensor
import torch.utils._device
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import ddpnb
from ddpnb.recorder.collectives.signatures import OPS
from ddpnb.recorder.events import torch_names
from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.events.torch_names import NAMES, TESTED, has
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import RUN_ACTIVE, BoxReader
from ddpnb.recording.events.runs import TorchDiffers
from ddpnb.recording.recording import RankRecord
from tests.recorder.events.patched import REPLACED

ROOT = Path(ddpnb.__file__).parent
#: private names of others, in modules that import torch
OTHERS = frozenset(
    # Python
    "__ _active _bootstrap _current_frames _exit _fields _get_running_loop _getframe _initializing _is_gil_enabled _is_owned "
    "_name _set_running_loop _target "
    # IPython, accelerate, Lightning
    "_dh _ih _oh _instance _IS_INTERACTIVE _shared_state".split()
)


def uses() -> dict[str, set[str]]:
    """Private name -> the modules of ddpnb that import torch and use it on something that is not theirs."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        if "pitfalls" in path.parts or "torch" not in text or path.name == "torch_names.py":
            continue
        tree = ast.parse(text)
        imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {one.asname or one.name.split(".")[0]: one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        of_torch = [name for name in imported.values() if name.split(".")[0] == "torch"]
        if not of_torch:
            continue
        nodes = list(ast.walk(tree))
        stored = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store)]
        own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))}
        own |= {getattr(node, "attr", "") or getattr(node, "id", "") for node in stored}
        names = {part for name in of_torch for part in name.split(".")[1:]}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and not (
                isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            ):
                if node.attr not in own or _root(node) in imported:
                    names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                names |= {node.value} - own
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("recorder.")
        for name in names:
            if name.startswith("_") and not name.startswith("__") and name.strip("_"):
                found[name].add(module)
    return found


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_every_private_name_of_torch_has_a_row():
    known = {part for name in [*(one.name for one in NAMES), *REPLACED] for part in name.replace("()", "").split(".")}
    missing = {name: sorted(modules) for name, modules in uses().items() if name not in OTHERS | known}
    assert not missing, f"recorder/events/torch_names.py has no row for these names in these modules: {missing}"


def test_every_row_is_used():
    text = "\n".join(path.read_text() for path in ROOT.rglob("*.py") if path.name != "torch_names.py")
    for one in NAMES:
        assert one.name.replace("()", "").rpartition(".")[2] in text, f"nothing uses {one.name} any more"


# -- with the torch of these tests


class _Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, item):
        return item


def _workers():
    return iter(DataLoader(_Data(), num_workers=1))


def _dtensor():
    return torch.distributed.tensor.DTensor.from_local(
        torch.ones(1), dist.device_mesh.init_device_mesh("cpu", (1,)), [torch.distributed.tensor.Replicate()]
    )


def _reduction():
    """A reduce operation, as the dispatcher gives it to a kernel."""
    seen: list[object] = []
    library = torch.library.Library("c10d", "IMPL")
    after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)

    def kernel(keyset, *arguments):
        seen.append(arguments[2])
        return torch.ops.c10d.allreduce_.default.redispatch(keyset & after, *arguments)

    library.impl("allreduce_", kernel, "BackendSelect", with_keyset=True)
    try:
        dist.all_reduce(torch.ones(1), op=dist.ReduceOp.MAX)
    finally:
        library._destroy()

    class Reduction:
        def __getattr__(self, name):
            try:
                return seen[0]._get_method(name)
            except RuntimeError as error:
                raise AttributeError(name) from error

    return Reduction()


def _ignoring():
    module = torch.nn.Linear(1, 1)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ["bias"])
    return module


def _scaled():
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    return scaler


#: how an object of a class is made, or what a name with ``()`` returns
MAKES = {
    "torch.compile()": lambda: torch.compile(lambda x: x, backend="eager"),
    "torch.library.Library()": lambda: torch.library.Library("ddpnb_test", "FRAGMENT"),
    "torch.classes.c10d.ReduceOp()": _reduction,
    "torch.distributed.ProcessGroup()": lambda: dist.group.WORLD,
    "torch.distributed.ProcessGroup()._get_backend()": lambda: dist.group.WORLD._get_backend(torch.device("cpu")),
    "torch.nn.Module()": _ignoring,
    "torch.nn.parallel.DistributedDataParallel()": lambda: DistributedDataParallel(torch.nn.Linear(1, 1)),
    "torch.distributed.tensor.DTensor()": _dtensor,
    "torch.amp.GradScaler()": _scaled,
    "torch.utils.data.DataLoader()": lambda: DataLoader(_Data()),
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter()": _workers,
    "torch.distributed.algorithms.join.Join()": lambda: torch.distributed.algorithms.join.Join(
        [DistributedDataParallel(torch.nn.Linear(1, 1))]
    ),
}
GRADIENTS = {
    "_saved_reduction": lambda x: torch.nn.functional.mse_loss(x, torch.zeros(2)),
    "_raw_saved_other": lambda x: x.mean() * 4,
    "_raw_saved_self": lambda x: 4 * x.mean(),
}


def found(name: str):
    """What a name of the table is with this torch.

    Raises:
        AttributeError: it is not there.
    """
    if name.startswith("torch.Tensor().grad_fn."):
        first, *rest = name.split(".")[3:]
        node = GRADIENTS[first](torch.ones(2, requires_grad=True)).grad_fn
        value = functools.reduce(getattr, [first, *rest], node)
        if rest and value is None:
            raise AttributeError(name)
        return value
    begins = max((made for made in MAKES if name.startswith(made + ".")), key=len, default="")
    if begins:
        return functools.reduce(getattr, name[len(begins) + 1 :].split("."), MAKES[begins]())
    module, parts = torch, name.split(".")[1:]
    while parts and f"{module.__name__}.{parts[0]}" in sys.modules:
        module = sys.modules[f"{module.__name__}.{parts.pop(0)}"]
    return functools.reduce(getattr, parts, module)


@pytest.mark.usefixtures("alone")
def test_this_torch_has_them():
    import torch._dynamo  # noqa: F401

    moved = [text for one in NAMES if (text := _moved(one))]
    assert not moved, f"torch {torch.__version__}:\n" + "\n".join(moved)


def _moved(one):
    """What is not as the table says of a name; empty: nothing."""
    if "NCCL" in one.name and not dist.is_nccl_available():
        return ""
    try:
        value, there = found(one.name), True
    except AttributeError:
        value, there = None, False
    if (
        there != has(one.name) and one.name != "torch.distributed.tensor.DTensor.from_local"
    ):  # there, but not to be hooked
        return f"{one.name} {'is there again' if there else 'has moved'}: {one.without or one.instead}"
    unknown = set(one.takes) - set(parameters(value)) if there else ()
    return f"{one.name} has no parameter {unknown} any more" if unknown else ""


def test_a_row_says_what_is_done_without_the_name():
    assert all(bool(one.without) != bool(one.instead) for one in NAMES)
    assert len({one.name for one in NAMES}) == len(NAMES)


def parameters(function) -> list[str]:
    """The names of the parameters of a function, of one in C++ from its first line of documentation."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        first = (function.__doc__ or "").partition("(")[2].split("->")[0]
        return [part.split(":")[0].strip() for part in first.rstrip(") ").split(",")]


def test_every_operator_of_this_torch_is_known():
    """A new one must be looked at: it would pass the door unseen."""
    later = {
        one.name.rpartition(".")[2] for one in NAMES if one.name.startswith("torch.ops.c10d.") and not has(one.name)
    }
    names = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::")}
    assert names - {"check_for_nan"} == set(OPS) - later


def test_hooks_name_parameters_as_torch_does(tmp_path, monkeypatch):
    """``look(self, _none, sampler, dataset, ...)``: a parameter that torch has renamed would not be found in a call by name."""
    from ddpnb.recorder.recorder import Recorder

    seen, wrong = [], []
    for name, skips in (("before", 0), ("after", 1), ("failing", 1)):
        original = getattr(Hooks, name)

        def watched(self, owner, function, look, original=original, skips=skips):
            seen.append((owner, function, look, skips, getattr(owner, function, None)))
            original(self, owner, function, look)

        monkeypatch.setattr(Hooks, name, watched)
    recorder = Recorder(str(tmp_path), 0)
    try:
        for owner, function, look, skips, replaced in seen:
            if replaced is None or not getattr(owner, "__module__", getattr(owner, "__name__", "")).startswith("torch"):
                continue
            if isinstance(replaced, types.BuiltinFunctionType):  # its parameters have no names
                continue
            theirs = list(inspect.signature(replaced).parameters.values())
            given = [one.name for one in theirs if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
            first = [None] * (skips + (given[:1] == ["self"]))
            given = given[given[:1] == ["self"] :]
            looks = list(inspect.signature(look).parameters.values())[len(first) :]
            named = [one.name for one in looks if one.kind == one.POSITIONAL_OR_KEYWORD]
            try:
                inspect.signature(look).bind(*first, **dict.fromkeys(given))
            except TypeError as error:
                wrong.append(f"{owner.__name__}.{function} may be called with {given}: {error}")
            wrong += [
                f"{owner.__name__}.{function}: {one} is {other}"
                for one, other in zip(named, given, strict=False)
                if one != other
            ]
    finally:
        for hooks in recorder.hooks:
            hooks.remove()
        recorder.door.close()
    assert not wrong, "\n".join(wrong)


def test_tested_versions_are_those_that_are_installed():
    requirement = next(line for line in (ROOT.parent / "pyproject.toml").read_text().splitlines() if '"torch>=' in line)
    (low, high), after = TESTED, (TESTED[1][0], TESTED[1][1] + 1)
    assert f'"torch>={low[0]}.{low[1]},<{after[0]}.{after[1]}"' in requirement
    assert TESTED[0] <= torch_names.version() <= high


# -- with another one


@pytest.fixture
def noted(tmp_path, monkeypatch, capsys):
    """What is said and recorded of a torch of this version."""

    def noted(version, rank=0):
        monkeypatch.setattr(torch, "__version__", version)
        box = BlackBox(str(tmp_path / f"{version}-{rank}.box"), rank)
        torch_names.note(box, rank)
        box.set_run(1, RUN_ACTIVE)
        events = [event for event in BoxReader(box.memory).events() if isinstance(event, TorchDiffers)]
        return events, capsys.readouterr().err

    return noted


def test_what_an_old_torch_has_not_is_recorded(noted):
    (event,), said = noted("2.9.1+cu128")
    assert said == "" and not event.newer
    assert "reduce operations (sum, max) of collectives are neither recorded nor compared" in event.without
    (gap,) = RankRecord(3, history=(event,)).gaps
    assert gap.startswith("Not known with torch 2.9.1+cu128: ") and gap.endswith(".")
    assert noted("2.13.0")[0] == noted("2.15.0a0+git123")[0] == []


def test_a_newer_torch_with_all_names_is_silent(noted):
    assert noted("2.99.0") == ([], "")


def test_of_a_newer_torch_is_said_once_what_is_missing(noted, monkeypatch):
    monkeypatch.delattr(DistributedDataParallel, "_active_ddp_module")
    monkeypatch.delattr(torch.nn.modules.batchnorm, "_BatchNorm")
    (event,), said = noted("3.0.0")
    assert event.newer and len(event.without) == 2
    assert (
        said.startswith("ddpnb: torch 3.0.0 is newer than all that ddpnb was tested with. Not known with it: ")
        and said.count("\n") == 1
    )
    (event,), said = noted("3.0.0", rank=1)
    assert event.newer and said == ""


NEWER = """
import json, sys, tempfile
import torch._dynamo, torch.distributed as dist
import torch.nn.modules.batchnorm, torch.utils.data.dataloader as loading
from torch.nn.parallel import DistributedDataParallel as DDP

def train():
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in torch.utils.data.DataLoader(torch.arange(24.0).view(6, 4), batch_size=2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        torch.nn.utils.clip_grad_norm_(parameters=model.parameters(), max_norm=1.0)
        optimizer.step()
    model.load_state_dict(state_dict=model.state_dict())
    dist.destroy_process_group()
    return [parameter.tolist() for parameter in model.parameters()]

plain = train()
torch.__version__ = "3.0.0"
del loading._BaseDataLoaderIter, torch.nn.modules.batchnorm._BatchNorm, dist.distributed_c10d._ProcessGroupWrapper
from ddpnb.recording.blackbox import RUN_ACTIVE, BoxReader
from ddpnb.recording.recording import RankRecord
from tests.recorder.events.patched import REPLACED
from ddpnb.recorder.recorder import Recorder
recorder = Recorder(tempfile.mkdtemp(), 0)
recorder.begin_run(1, "raise")
recorder.box.set_run(1, RUN_ACTIVE)
recorded = train()
reader = BoxReader(recorder.box.memory)
events = tuple(reader.events())
print(json.dumps([plain == recorded, [call.op for call in reader.calls()][-1:], RankRecord(0, history=events).gaps,
                  [event.title for event in events]]))
"""


@pytest.mark.full
def test_a_program_trains_on_a_torch_without_some_names(forked):
    """Each set of hooks falls alone, and a run says which."""
    done = forked.run(NEWER)
    assert done.returncode == 0, done.stderr
    same, calls, gaps, titles = json.loads(done.stdout.splitlines()[-1])
    assert same and calls == ["all_reduce"]
    assert {"init_process_group", "buffers synced", "state loaded"} <= set(titles), titles
    newer, *failed = gaps
    assert (
        newer.startswith("torch 3.0.0 is newer than all that ddpnb was tested with. Not known with it: ")
        and len(failed) == 1
    )
    assert "_BaseDataLoaderIter" in failed[0]
    assert done.stderr.count("ddpnb: torch 3.0.0 is newer than all") == 1
