"""The meaning of names in distributed code: collectives and ranks.

Names are all that a scan has: it imports nothing and runs nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache

P2P = frozenset({
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list",
})  # fmt: skip
SETUP = frozenset({
    "init_process_group", "destroy_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
    "split_group", "shrink_group", "init_device_mesh",
})  # fmt: skip
# Ranks need not call these together.
ENDS = frozenset({"destroy_process_group"})
_COLLECTIVES = frozenset({
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
    "all_gather_single", "all_gather_tensor", "all_gather_tensor_autograd", "all_gather_into_tensor_coalesced",
    "_all_gather_base", "all_gather_object", "all_to_all", "all_to_all_single", "all_to_all_single_autograd",
    "barrier", "monitored_barrier", "broadcast", "broadcast_object_list", "gather", "gather_into_tensor", "gather_object",
    "gather_single", "reduce",
    "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced", "_reduce_scatter_base", "scatter", "scatter_object_list", "permute_tensor",
    "_broadcast_coalesced", "_sync_module_states", "_sync_params_and_buffers", "_verify_param_shape_across_processes",
})  # fmt: skip
_WRAPPERS = frozenset({"DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"})
# Everything under torch.distributed.checkpoint reads or writes a part per rank, and plans together.
_CHECKPOINT = frozenset({
    "save", "load", "async_save", "save_state_dict", "load_state_dict", "load_sharded_optimizer_state_dict",
    "get_state_dict", "get_model_state_dict", "get_optimizer_state_dict", "set_state_dict", "set_model_state_dict",
    "set_optimizer_state_dict",
})  # fmt: skip
_TENSORS = frozenset({"distribute_tensor", "distribute_module"})
_FSDP = frozenset({"full_optim_state_dict", "optim_state_dict", "sharded_optim_state_dict", "summon_full_params"})
# Methods with unique names.
METHODS = frozenset({
    "wait_for_everyone", "gather_for_metrics", "pad_across_processes", "main_process_first",
    "local_main_process_first", "consolidate_state_dict", "monitored_barrier",
})  # fmt: skip
# Methods of Accelerator and Fabric objects, and of process groups; elsewhere these words are ambiguous.
ACCELERATOR = frozenset({"gather", "reduce", "gather_object", "broadcast", "all_gather", "all_reduce", "barrier"})
STRATEGY = frozenset({"barrier", "all_gather", "reduce"})
GROUP = frozenset({
    "allreduce", "allgather", "alltoall", "allreduce_coalesced", "allgather_coalesced", "_allgather_base",
    "_reduce_scatter_base", "barrier", "broadcast", "reduce", "reduce_scatter", "gather", "scatter", "send", "recv",
    "recv_anysource", "alltoall_base", "all_to_all_single", "all_gather_single", "reduce_scatter_single",
})  # fmt: skip
_OTHERS = ("deepspeed.comm", "deepspeed", "lightning.fabric", "accelerate.utils", "fairscale", "mmengine.dist")


def operation(name: str) -> str | None:
    """The collective that a dotted name of something outside of the project stands for."""
    path, _, last = name.rpartition(".")
    if path == "torch.distributed" or path.startswith("torch.distributed."):
        if ".checkpoint" in path:
            return f"checkpoint.{last}" if last in _CHECKPOINT else None
        if path.rpartition(".")[2] == "FullyShardedDataParallel":
            return last if last in _FSDP else None
        known = _COLLECTIVES | P2P | SETUP | _WRAPPERS | _TENSORS
        return last if last in known else "init_device_mesh" if last == "DeviceMesh" else None
    if path in ("torch.nn.parallel", "torch.nn.parallel.distributed", "torch.nn"):
        return last if last in _WRAPPERS else None
    parts = path.split(".")
    if parts[0] != "torch" and (path in _OTHERS or any("dist" in part or "comm" in part for part in parts)):
        if last in ("init_distributed", "initialize_distributed"):
            return "init_process_group"
        # "gather" or "send" of an unknown "common" package is ambiguous; these are not.
        return last if (last in _COLLECTIVES and "_" in last.strip("_")) or last == "barrier" else None
    return None


def group_method(name: str) -> str:
    """``allreduce`` of a process group, as torch.distributed calls it."""
    words = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}
    first, _, rest = name.partition("_")
    if name in ("recv_anysource", "alltoall_base"):
        return {"recv_anysource": "recv"}.get(name, "all_to_all_single")
    return "_".join(filter(None, (words.get(first, first), rest)))


# -- ranks

_RANK = re.compile(
    r"(?:(?:my|cur|curr|current|this|self|world|global|local|node|host|machine|group|process|proc|worker|gpu|device|"
    r"ddp|fsdp|dist|distributed|dp|tp|pp|cp|ep|mp|sp|data_parallel|tensor_parallel|model_parallel|"
    r"pipeline_parallel|pipe_parallel|intra|inter|mpi|slurm)_)*"
    r"(?:rank|rank_id|rankid|rank_idx)"
)
_INDEX = frozenset({"process_index", "local_process_index", "process_id", "proc_id", "node_id", "ordinal"})
_FIRST = re.compile(
    r"(?:is_|am_|on_|if_)?(?:the_)?(?:local_|global_|world_|node_)?"
    r"(?:main|master|first|primary|chief|rank_?zero|rank_?0|root|zero_rank|head|leader|coordinator|global_zero)"
    r"(?:_?(?:process|proc|rank|node|worker|host|only))?"
)
_LAST = re.compile(r"(?:is_)?(?:the_)?last_(?:process|rank|worker)")
_PLAIN_FIRST = frozenset({"main", "master", "first", "primary", "root", "head", "leader", "chief", "coordinator"})
_ENVIRONMENT = re.compile(
    r"(?:LOCAL_|GROUP_|NODE_|ROLE_|GLOBAL_|OMPI_COMM_WORLD_(?:LOCAL_|NODE_)?|PMI_|PMIX_|MV2_COMM_WORLD_(?:LOCAL_)?|"
    r"MPI_LOCAL)?RANK(?:ID)?|SLURM_(?:PROCID|LOCALID|NODEID)"
)


def _bare(name: str) -> str:
    name = name.strip("_")[:80].lower()
    return name.removeprefix("get_")


def is_rank(name: str) -> bool:
    """``rank``, ``local_rank``, ``get_rank``, ``dp_rank``; not ``lora_rank`` or ``num_ranks``."""
    bare = _bare(name)
    return bool(_RANK.fullmatch(bare)) or bare in _INDEX


def is_first(name: str) -> bool:
    """``is_main_process``, ``master_process``, ``rank_zero``: true on one rank."""
    bare = _bare(name)
    return bare not in _PLAIN_FIRST and bool(_FIRST.fullmatch(bare))


def is_last(name: str) -> bool:
    return bool(_LAST.fullmatch(_bare(name)))


@lru_cache(maxsize=4096)
def tells_rank(name: str) -> bool:
    """Whether the name suggests a value that differs between ranks."""
    return is_rank(name) or is_first(name) or is_last(name)


def is_rank_variable(name: str) -> bool:
    """``RANK``, ``LOCAL_RANK``, ``SLURM_PROCID``: an environment variable that is set per process."""
    return bool(_ENVIRONMENT.fullmatch(name[:80]))


_RANK_CALLS = frozenset({
    "torch.distributed.get_rank", "torch.distributed.get_node_local_rank", "torch.distributed.get_group_rank",
    "socket.gethostname", "os.getpid", "platform.node", "torch.cuda.current_device", "horovod.torch.rank",
    "horovod.torch.local_rank", "torch_xla.core.xla_model.get_ordinal", "torch_xla.runtime.global_ordinal",
})  # fmt: skip


def is_rank_call(name: str) -> bool:
    return name in _RANK_CALLS or (name.startswith("torch.distributed.") and name.endswith(".get_rank"))


def is_rank_decorator(name: str) -> bool:
    """``@rank_zero_only``, ``@main_process_only``, ``@on_main_process``: the function runs on one rank."""
    return is_first(name) or _bare(name) in ("main_only", "master_only", "rank_zero_only", "only_on_master")
