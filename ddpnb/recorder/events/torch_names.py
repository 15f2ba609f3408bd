"""The private and version-bound names of torch that a rank uses, beside the functions that hooks replace (in
``tests/recorder/events/patched.py``).

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
        without: what is lost where torch does not have it; empty: nothing, ``instead`` says why.
        instead: what is done then, or why nothing is.
        since: the first version that has it; None: all that are supported.
        takes: the names of the parameters that are passed.
    """

    name: str
    without: str = ""
    instead: str = ""
    since: tuple[int, int] | None = None
    takes: tuple[str, ...] = ()


_REFUSED = "the recorder does not start: the program runs as without ddpnb, and the launcher says so"
_HELD = "time-outs of process groups are not suspended while ranks are held"
_COMPILER = "torch.compile traces the code of hooks, and warns where it cannot"
_WORKERS = 'the faults "stalled worker" and "killed worker" cannot be injected'
_AMP = "how a scaler of mixed precision is set is not recorded"
_FACTORS = "the factors by which a loss is scaled are not recorded"

NAMES: tuple[TorchName, ...] = (
    # The door
    TorchName("torch._C._dispatch_keyset_full_after", _REFUSED),
    TorchName("torch._C.DispatchKey", _REFUSED),
    TorchName("torch._C._distributed_c10d.ProcessGroup.unbox", _REFUSED),
    TorchName("torch._C._distributed_c10d.Work.unbox", _REFUSED),
    TorchName("torch._C._distributed_c10d.Work.is_completed", _REFUSED),
    TorchName("torch.Tensor._is_view", "changes of tensors in flight are not recorded"),
    TorchName("torch.library.Library()._destroy", "hooks on collectives stay until the process ends"),
    TorchName("torch.ops.c10d.allreduce_.default._schema", _REFUSED),
    TorchName("torch.ScriptObject._get_method", "reduce operations are not recorded"),
    TorchName(
        "torch.classes.c10d.ReduceOp().op",
        "reduce operations (sum, max) of collectives are neither recorded nor compared",
        since=(2, 10),
    ),
    TorchName("torch.ops.c10d._allgather_base_", "all_gather_into_tensor is not seen"),
    TorchName(
        "torch.Tensor._version", "the last step of a training is not looked at, nor changes of tensors in flight"
    ),
    TorchName("torch.ops.c10d._reduce_scatter_base_", "reduce_scatter_tensor is not seen"),
    TorchName("torch.ops.c10d.gather_into_tensor_", instead="there is no such collective", since=(2, 14)),
    TorchName(
        "torch.distributed.ProcessGroup.register_pre_hook",
        instead="all collectives have kernels, which cost more",
        since=(2, 14),
    ),
    TorchName(
        "torch.distributed.ProcessGroup.register_post_hook",
        instead="all collectives have kernels, which cost more",
        since=(2, 14),
    ),
    TorchName(
        "torch._C._distributed_c10d.HookOpName.ALLGATHER_BASE",
        instead="the calling function says which operator it is",
        since=(2, 15),
    ),
    TorchName(
        "torch.distributed.distributed_c10d._coalescing_manager",
        "the reduction of calls that are made as one is not recorded",
    ),
    TorchName(
        "torch.ops._c10d_functional.all_reduce.default._schema",
        "the operator of functional collectives is not recorded with hooks",
    ),
    # Groups, start-up and release
    TorchName("torch.distributed.ProcessGroup._get_backend", f"{_HELD}; NCCL cannot be released", takes=("device",)),
    TorchName("torch.distributed.ProcessGroup()._get_backend().options._timeout", _HELD),
    TorchName("torch.distributed.ProcessGroup()._get_backend()._set_default_timeout", _HELD, takes=("timeout",)),
    TorchName(
        "torch._C._distributed_c10d._ProcessGroupWrapper",
        "with TORCH_DISTRIBUTED_DEBUG=DETAIL collectives are compared twice",
    ),
    TorchName(
        "torch._C._distributed_c10d._ProcessGroupWrapper.wrapped_pg",
        "in DETAIL mode the class of a back end is that of its wrapper",
    ),
    TorchName("torch.distributed.distributed_c10d._world.pg_map", "NCCL cannot be released"),
    TorchName("torch.distributed.distributed_c10d._world.pg_names", "groups in Python have no names"),
    TorchName("torch.distributed.ProcessGroup._device_types", f"{_HELD}; NCCL cannot be released"),
    TorchName("torch._C._get_privateuse1_backend_name", "the device that a script has chosen is not recorded"),
    TorchName(
        "torch.distributed.distributed_c10d._world.group_count",
        "groups have no names, and a second start-up in one process may fail",
    ),
    TorchName(
        "torch.distributed.distributed_c10d._get_default_store",
        "init_process_group() in a process that had a group may find the old store",
    ),
    *(
        TorchName(
            f"torch.distributed._symmetric_memory.{name}",
            "where this shows symmetric memory, it is not said that a wait may be in it",
        )
        for name in ("_group_name_to_store", "_group_name_to_workspace_tensor", "_symm_mem_pools", "_backend_streams")
    ),
    # Compiled programs
    *(
        TorchName(f"torch._dynamo.{name}", "what torch.compile compiles is not recorded")
        for name in (
            "callback.callback_handler.start_callbacks",
            "callback.callback_handler.end_callbacks",
            "utils.counters",
            "convert_frame",
        )
    ),
    # Models, losses and optimizers
    TorchName("torch.nn.Module()._parameters", "models are not looked into"),
    TorchName("torch.nn.Module()._buffers", "models are not looked into"),
    TorchName("torch.nn.Module()._modules", "models are not looked into"),
    TorchName("torch.nn.modules.batchnorm._BatchNorm", "conversions to SyncBatchNorm are not recorded"),
    TorchName("torch.Tensor._fix_weakref", "models are not followed"),
    TorchName(
        "torch.nn.parallel.DistributedDataParallel()._comm_hooks",
        "communication hooks that were there before are not recorded",
    ),
    TorchName(
        "torch.nn.parallel.DistributedDataParallel._active_ddp_module", "direct calls of a wrapped model are not found"
    ),
    TorchName(
        "torch.nn.parallel.DistributedDataParallel().forward_sync_buffers",
        instead="broadcast_buffers says the same",
        since=(2, 13),
    ),
    TorchName("torch.nn.Module()._ddp_params_and_buffers_to_ignore", "parameters that DDP ignores are compared too"),
    TorchName("torch.distributed.tensor.DTensor()._local_tensor", "values of sharded tensors are not shown"),
    TorchName(
        "torch.distributed.tensor.DTensor.from_local",
        "tensors that are declared equal are not compared: the compiler would not know the hooked function",
        since=(2, 12),
    ),
    TorchName("torch.Tensor().grad_fn._saved_reduction", "how a loss is reduced is not recorded"),
    TorchName("torch.Tensor().grad_fn._raw_saved_other", _FACTORS),
    TorchName("torch.Tensor().grad_fn._raw_saved_self", _FACTORS),
    TorchName("torch.Tensor().grad_fn._raw_saved_other.data", _FACTORS, since=(2, 10)),
    TorchName("torch.nn.parallel.distributed._DDPSink", "the graph of a loss is not read behind DDP"),
    TorchName("torch.amp.GradScaler()._enabled", _AMP),
    TorchName("torch.amp.GradScaler()._init_scale", _AMP),
    TorchName("torch.amp.GradScaler()._scale", _AMP),
    TorchName("torch.optim.lr_scheduler.LRScheduler._is_initial", "the first step of a scheduler counts as the user's"),
    # Data
    TorchName(
        "torch.utils.data.dataloader._BaseDataLoaderIter", "batches, and the time that they take, are not recorded"
    ),
    TorchName("torch.utils.data.dataloader._MultiProcessingDataLoaderIter", _WORKERS),
    TorchName("torch.utils.data.dataloader._MultiProcessingDataLoaderIter()._task_info", _WORKERS),
    TorchName("torch.utils.data.dataloader._MultiProcessingDataLoaderIter()._workers", _WORKERS),
    TorchName(
        "torch.utils.data.DataLoader()._DataLoader__multiprocessing_context", "how workers are started is not recorded"
    ),
    TorchName("torch.distributed.algorithms.join.Join()._enable", "uneven data counts as allowed in any Join"),
    TorchName("torch.utils._pytree.tree_flatten", 'the fault "bad sample" cannot be injected'),
    TorchName("torch.utils._pytree.tree_unflatten", 'the fault "bad sample" cannot be injected'),
    # Reading, the compiler and faults
    TorchName("torch._C.DisableTorchFunctionSubclass", "tensors cannot be looked at"),
    TorchName("torch.utils._device", "a default device that a script sets is not restored"),
    TorchName("torch._dynamo", "the first use of the compiler is slower"),
    TorchName("torch.compile()._torchdynamo_inline", _COMPILER),
    TorchName("torch._C._dynamo.eval_frame._FrameAction", _COMPILER),
    TorchName("torch._C._dynamo.eval_frame._FrameExecStrategy", _COMPILER),
    TorchName("torch._C._dynamo.eval_frame.set_code_exec_strategy", _COMPILER),
    TorchName("torch._C._distributed_c10d._create_work_from_future", "the faults that skip a call cannot be injected"),
)


def version() -> tuple[int, int]:
    """Of torch: (2, 14)."""
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    return (int(found[1]), int(found[2])) if found else TESTED[1]


def has(name: str) -> bool:
    """Whether this version of torch has a name of the table, as far as the table says."""
    return _is_of(next(one for one in NAMES if one.name == name), version())


def _is_of(one: TorchName, current: tuple[int, int]) -> bool:
    return one.since is None or current >= one.since


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
