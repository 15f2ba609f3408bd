"""The private and version-bound names of torch that a rank uses, beside the functions that hooks replace (``patched``).

A name that begins with an underscore is private: torch may drop it in any version. ``tests/recorder/events/test_torch_names.py``
compares this table with the source, so that a new use needs a row, and with the torch that runs the tests;
``make test-torch VERSION=...`` does so with another one.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.events.runs import TorchDiffers

#: the oldest and the newest version that `make test-torch` has passed with
TESTED = ((2, 9), (2, 15))


@dataclass(frozen=True, slots=True)
class TorchName:
    """A name of torch.

    Args:
        name: in full; ``()`` stands for an object of a class or for what a method returns.
        used: by these modules of the recorder, or of ddpnb.
        without: what is lost where torch does not have it; empty: nothing, ``instead`` says why.
        instead: what is done then, or why nothing is.
        since: the first version that has it; None: all that are supported.
        before: the first version that does not have it any more; None: it is still there.
        takes: the names of the parameters that are passed.
    """

    name: str
    used: tuple[str, ...]
    without: str = ""
    instead: str = ""
    since: tuple[int, int] | None = None
    before: tuple[int, int] | None = None
    takes: tuple[str, ...] = ()


_REFUSED = "the recorder does not start: the program runs as without ddpnb, and the launcher says so"
_HELD = "time-outs of process groups are not suspended while ranks are held"
_COMPILER = "torch.compile traces the code of hooks, and warns where it cannot"
_WORKERS = 'the faults "stalled worker" and "killed worker" cannot be injected'
_AMP = "how a scaler of mixed precision is set is not recorded"
_FACTORS = "the factors by which a loss is scaled are not recorded"

NAMES: tuple[TorchName, ...] = (
    # The door
    TorchName("torch._C._dispatch_keyset_full_after", ("collectives.door",), _REFUSED),
    TorchName("torch._C.DispatchKey", ("collectives.door",), _REFUSED),
    TorchName("torch._C._distributed_c10d.ProcessGroup.unbox", ("collectives.door", "faults.at_door"), _REFUSED),
    TorchName("torch._C._distributed_c10d.Work.unbox", ("collectives.door", "faults.at_door"), _REFUSED),
    TorchName("torch._C._distributed_c10d.Work.is_completed", ("collectives.door",), _REFUSED),
    TorchName(
        "torch.library.Library()._destroy", ("collectives.door",), "hooks on collectives stay until the process ends"
    ),
    TorchName("torch.ops.c10d.allreduce_.default._schema", ("collectives.door",), _REFUSED),
    TorchName(
        "torch.ScriptObject._get_method", ("collectives.door", "faults.at_door"), "reduce operations are not recorded"
    ),
    TorchName(
        "torch.classes.c10d.ReduceOp().op",
        ("collectives.door", "faults.at_door"),
        "reduce operations (sum, max) of collectives are neither recorded nor compared",
        since=(2, 10),
    ),
    TorchName(
        "torch.ops.c10d._allgather_base_",
        ("collectives.signatures", "collectives.callers", "collectives.group_hooks"),
        "all_gather_into_tensor is not seen",
    ),
    TorchName(
        "torch.ops.c10d._reduce_scatter_base_",
        ("collectives.signatures", "collectives.callers", "collectives.group_hooks"),
        "reduce_scatter_tensor is not seen",
    ),
    TorchName(
        "torch.ops.c10d.gather_into_tensor_",
        ("collectives.signatures",),
        instead="there is no such collective",
        since=(2, 14),
    ),
    TorchName(
        "torch.distributed.ProcessGroup.register_pre_hook",
        ("collectives.group_hooks",),
        instead="all collectives have kernels, which cost more",
        since=(2, 14),
    ),
    TorchName(
        "torch.distributed.ProcessGroup.register_post_hook",
        ("collectives.group_hooks",),
        instead="all collectives have kernels, which cost more",
        since=(2, 14),
    ),
    TorchName(
        "torch._C._distributed_c10d.HookOpName.ALLGATHER_BASE",
        ("collectives.group_hooks",),
        instead="the calling function says which operator it is",
        since=(2, 15),
    ),
    TorchName(
        "torch.distributed.distributed_c10d._coalescing_manager",
        ("collectives.callers",),
        "the reduction of calls that are made as one is not recorded",
    ),
    TorchName(
        "torch.ops._c10d_functional.all_reduce.default._schema",
        ("collectives.callers",),
        "the operator of functional collectives is not recorded with hooks",
    ),
    # Groups, start-up and release
    TorchName(
        "torch.distributed.ProcessGroup._get_backend",
        ("collectives.groups",),
        f"{_HELD}; NCCL cannot be released",
        takes=("device",),
    ),
    TorchName("torch.distributed.ProcessGroup()._get_backend().options._timeout", ("collectives.groups",), _HELD),
    TorchName(
        "torch.distributed.ProcessGroup()._get_backend()._set_default_timeout",
        ("collectives.groups",),
        _HELD,
        takes=("timeout",),
    ),
    TorchName(
        "torch._C._distributed_c10d._ProcessGroupWrapper",
        ("collectives.groups",),
        "with TORCH_DISTRIBUTED_DEBUG=DETAIL collectives are compared twice",
    ),
    TorchName(
        "torch._C._distributed_c10d._ProcessGroupWrapper.wrapped_pg",
        ("collectives.groups",),
        "in DETAIL mode the class of a back end is that of its wrapper",
    ),
    TorchName(
        "torch.distributed.distributed_c10d._world.pg_map",
        ("collectives.group_hooks", "collectives.group_users", "holds.release"),
        "NCCL cannot be released",
    ),
    TorchName(
        "torch.distributed.distributed_c10d._world.pg_names", ("collectives.groups",), "groups in Python have no names"
    ),
    TorchName(
        "torch.distributed.ProcessGroup._device_types", ("collectives.groups",), f"{_HELD}; NCCL cannot be released"
    ),
    TorchName(
        "torch._C._get_privateuse1_backend_name",
        ("events.phases",),
        "the device that a script has chosen is not recorded",
    ),
    TorchName(
        "torch.distributed.distributed_c10d._world.group_count",
        ("events.phases",),
        "groups have no names, and a second start-up in one process may fail",
    ),
    TorchName(
        "torch.distributed.distributed_c10d._get_default_store",
        ("events.phases",),
        "init_process_group() in a process that had a group may find the old store",
    ),
    *(
        TorchName(
            f"torch.distributed._symmetric_memory.{name}",
            ("collectives.unseen",),
            "where this shows symmetric memory, it is not said that a wait may be in it",
        )
        for name in ("_group_name_to_store", "_group_name_to_workspace_tensor", "_symm_mem_pools", "_backend_streams")
    ),
    # Compiled programs
    *(
        TorchName(
            f"torch._dynamo.{name}",
            ("events.compilations",),
            "what torch.compile compiles is not recorded",
        )
        for name in (
            "callback.callback_handler.start_callbacks",
            "callback.callback_handler.end_callbacks",
            "utils.counters",
            "convert_frame",
        )
    ),
    # Models, losses and optimizers
    TorchName(
        "torch.nn.Module()._parameters",
        ("faults.wrapping", "stacks.inside", "models.tensor_paths", "events.training"),
        "models are not looked into",
    ),
    TorchName(
        "torch.nn.Module()._buffers",
        ("stacks.inside", "models.tensor_paths", "events.training"),
        "models are not looked into",
    ),
    TorchName(
        "torch.nn.Module()._modules",
        ("faults.wrapping", "stacks.inside", "models.tensor_paths", "events.training"),
        "models are not looked into",
    ),
    TorchName(
        "torch.nn.modules.batchnorm._BatchNorm", ("events.training",), "conversions to SyncBatchNorm are not recorded"
    ),
    TorchName("torch.Tensor._fix_weakref", ("models.tracked_model",), "models are not followed"),
    TorchName(
        "torch.nn.parallel.DistributedDataParallel()._comm_hooks",
        ("events.training",),
        "communication hooks that were there before are not recorded",
    ),
    TorchName(
        "torch.nn.parallel.DistributedDataParallel._active_ddp_module",
        ("models.bypass",),
        "direct calls of a wrapped model are not found",
    ),
    TorchName(
        "torch.nn.parallel.DistributedDataParallel().forward_sync_buffers",
        ("models.replicas",),
        instead="broadcast_buffers says the same",
        since=(2, 13),
    ),
    TorchName(
        "torch.nn.Module()._ddp_params_and_buffers_to_ignore",
        ("models.tracked_model",),
        "parameters that DDP ignores are compared too",
    ),
    TorchName(
        "torch.distributed.tensor.DTensor()._local_tensor",
        ("models.tensor_values",),
        "values of sharded tensors are not shown",
    ),
    TorchName(
        "torch.distributed.tensor.DTensor.from_local",
        ("models.replicated",),
        "tensors that are declared equal are not compared: the compiler would not know the hooked function",
        since=(2, 12),
    ),
    TorchName("torch.Tensor().grad_fn._saved_reduction", ("models.losses",), "how a loss is reduced is not recorded"),
    TorchName("torch.Tensor().grad_fn._raw_saved_other", ("models.losses",), _FACTORS),
    TorchName("torch.Tensor().grad_fn._raw_saved_self", ("models.losses",), _FACTORS),
    TorchName("torch.Tensor().grad_fn._raw_saved_other.data", ("models.losses",), _FACTORS, since=(2, 10)),
    TorchName(
        "torch.nn.parallel.distributed._DDPSink", ("models.losses",), "the graph of a loss is not read behind DDP"
    ),
    TorchName("torch.amp.GradScaler()._enabled", ("models.optimizers",), _AMP),
    TorchName("torch.amp.GradScaler()._init_scale", ("models.optimizers",), _AMP),
    TorchName("torch.amp.GradScaler()._scale", ("models.replicas",), _AMP),
    TorchName(
        "torch.optim.lr_scheduler.LRScheduler._is_initial",
        ("models.optimizers",),
        "the first step of a scheduler counts as the user's",
    ),
    # Data
    TorchName(
        "torch.utils.data.dataloader._BaseDataLoaderIter",
        ("events.data", "faults.in_data", "events.steps"),
        "batches, and the time that they take, are not recorded",
    ),
    TorchName("torch.utils.data.dataloader._MultiProcessingDataLoaderIter", ("faults.in_data",), _WORKERS),
    TorchName("torch.utils.data.dataloader._MultiProcessingDataLoaderIter()._task_info", ("faults.in_data",), _WORKERS),
    TorchName("torch.utils.data.dataloader._MultiProcessingDataLoaderIter()._workers", ("faults.in_data",), _WORKERS),
    TorchName(
        "torch.utils.data.DataLoader()._DataLoader__multiprocessing_context",
        ("events.data",),
        "how workers are started is not recorded",
    ),
    TorchName(
        "torch.distributed.algorithms.join.Join()._enable",
        ("events.data",),
        "uneven data counts as allowed in any Join",
    ),
    TorchName("torch.utils._pytree.tree_flatten", ("faults.in_data",), 'the fault "bad sample" cannot be injected'),
    TorchName("torch.utils._pytree.tree_unflatten", ("faults.in_data",), 'the fault "bad sample" cannot be injected'),
    # Reading, the compiler and faults
    TorchName(
        "torch._C.DisableTorchFunctionSubclass",
        ("models.inputs", "models.tensor_paths", "models.tensor_values", "stacks.values"),
        "tensors cannot be looked at",
    ),
    TorchName("torch.utils._device", ("process.settings",), "a default device that a script sets is not restored"),
    TorchName(
        "torch._dynamo",
        ("ranks.fork_server",),
        "the first use of the compiler is slower",
    ),
    TorchName("torch.compile()._torchdynamo_inline", ("events.hooks",), _COMPILER),
    TorchName("torch._C._dynamo.eval_frame._FrameAction", ("events.hooks",), _COMPILER),
    TorchName("torch._C._dynamo.eval_frame._FrameExecStrategy", ("events.hooks",), _COMPILER),
    TorchName("torch._C._dynamo.eval_frame.set_code_exec_strategy", ("events.hooks",), _COMPILER),
    TorchName(
        "torch._C._distributed_c10d._create_work_from_future",
        ("faults.at_door",),
        "the faults that skip a call cannot be injected",
    ),
)


def version() -> tuple[int, int]:
    """Of torch: (2, 14)."""
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    return (int(found[1]), int(found[2])) if found else TESTED[1]


def has(name: str) -> bool:
    """Whether this version of torch has a name of the table, as far as the table says."""
    return _is_of(next(one for one in NAMES if one.name == name), version())


def _is_of(one: TorchName, current: tuple[int, int]) -> bool:
    return (one.since is None or current >= one.since) and (one.before is None or current < one.before)


def lost() -> list[str]:
    """What cannot be known with this torch. One that is newer than all tested is asked for each name."""
    current = version()
    newer = current > TESTED[1]
    return list(
        dict.fromkeys(
            one.without for one in NAMES if one.without and not (_is_there(one.name) if newer else _is_of(one, current))
        )
    )


def _is_there(name: str) -> bool:
    """Whether torch has a name; of one that needs an object or a module that is not imported, nothing is known: it has."""
    found: Any = torch
    for part in name.split(".")[1:]:
        if "()" in part:
            return True
        if not hasattr(found, part):
            return hasattr(found, "__path__") and find_spec(f"{found.__name__}.{part}") is not None
        found = getattr(found, part)
    return True


def note(box: BlackBox, rank: int) -> None:
    """Record in each run what is not known with this torch; the first rank says it of one that is newer than all tested."""
    found, newer = lost(), version() > TESTED[1]
    if not found:
        return
    event = TorchDiffers(version=str(torch.__version__), newer=newer, without=tuple(found))
    box.on_new_table.append(lambda: box.emit(event))
    if newer and rank == 0:
        print(f"ddpnb: {event.sentence}", file=sys.stderr, flush=True)
