"""The functions that a rank's hooks replace, by their full names, each with the modules of the recorder that do it.

What other modules have imported by name is replaced there too (``bindings``).

A name that begins with an underscore is private: torch may drop it in any version. A hook of a function that is not
there is left out, and the run's Recording says so. ``tests/recorder/test_patched.py`` compares this table with torch
and with what a rank replaces. Beside these, a rank uses ``torch.library`` for the collectives (``door``), torch's own
registries of hooks (``group_hooks``, ``replicas``, ``bypass``) and of callbacks (``compilations``), ``sys.monitoring``
(``path``), and ``builtins.__import__`` while a script runs (``hidden_modules``).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

REPLACED: dict[str, tuple[str, ...]] = {
    "multiprocessing.process.BaseProcess.start": ("own_ranks",),
    "os._exit": ("training",),
    "os.abort": ("training",),
    "os.kill": ("training",),
    "random.setstate": ("training",),
    "subprocess.Popen.__init__": ("own_ranks",),
    "torch._C._distributed_c10d.FileStore.get": ("store_waits",),
    "torch._C._distributed_c10d.FileStore.wait": ("store_waits",),
    "torch._C._distributed_c10d.HashStore.get": ("store_waits",),
    "torch._C._distributed_c10d.HashStore.wait": ("store_waits",),
    "torch._C._distributed_c10d.TCPStore.__init__": ("phases",),
    "torch._C._distributed_c10d.TCPStore.get": ("store_waits",),
    "torch._C._distributed_c10d.TCPStore.wait": ("store_waits",),
    "torch.amp.grad_scaler.GradScaler.__init__": ("optimizers",),
    "torch.amp.grad_scaler.GradScaler.load_state_dict": ("training",),
    "torch.amp.grad_scaler.GradScaler.unscale_": ("replicas",),
    "torch.amp.grad_scaler.GradScaler.update": ("replicas",),
    "torch.autograd.backward": ("faults.in_model", "phases", "replicas", "steps"),
    "torch.compile": ("bypass", "compilations"),
    "torch.cuda.random.set_rng_state": ("training",),
    "torch.cuda.set_rng_state": ("training",),
    "torch.distributed.algorithms.join.Join.__enter__": ("data",),
    "torch.distributed.c10d_logger._get_msg_dict": ("group_hooks",),
    "torch.distributed.device_mesh.DeviceMesh.__init__": ("phases", "replicated"),
    "torch.distributed.distributed_c10d.destroy_process_group": ("phases",),
    "torch.distributed.distributed_c10d.init_process_group": ("phases",),
    "torch.distributed.distributed_c10d.new_group": ("phases",),
    "torch.distributed.distributed_c10d.PrefixStore.get": ("store_waits",),
    "torch.distributed.distributed_c10d.PrefixStore.wait": ("store_waits",),
    "torch.distributed.distributed_c10d.ProcessGroup._register_backend": ("group_hooks",),
    "torch.distributed.distributed_c10d.ProcessGroup._set_group_name": ("group_hooks",),
    "torch.distributed.distributed_c10d.ProcessGroup.merge_remote_group": ("group_hooks",),
    "torch.distributed.distributed_c10d.ProcessGroup.reconfigure": ("phases",),
    "torch.distributed.distributed_c10d.ProcessGroup.split_group": ("group_hooks",),
    "torch.distributed.distributed_c10d.rendezvous": ("phases",),
    "torch.distributed.distributed_c10d.Work.is_completed": ("door",),
    "torch.distributed.distributed_c10d.Work.wait": ("door",),
    "torch.distributed.rpc.init_rpc": ("phases",),
    "torch.distributed.tensor.DTensor.from_local": ("replicated",),
    "torch.load": ("training",),
    "torch.manual_seed": ("faults.in_data", "training"),
    "torch.multiprocessing.spawn.start_processes": ("own_ranks",),
    "torch.nn.modules.batchnorm.SyncBatchNorm.convert_sync_batchnorm": ("training",),
    "torch.nn.modules.module.Module.load_state_dict": ("training",),
    "torch.nn.parallel.distributed.DistributedDataParallel.__init__": ("faults.in_model", "phases", "replicas"),
    "torch.nn.parallel.distributed.DistributedDataParallel.__setattr__": ("training",),
    "torch.nn.parallel.distributed.DistributedDataParallel._post_forward": ("replicas",),
    "torch.nn.parallel.distributed.DistributedDataParallel._pre_forward": ("replicas",),
    "torch.nn.parallel.distributed.DistributedDataParallel._register_builtin_comm_hook": ("training",),
    "torch.nn.parallel.distributed.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model": ("training",),
    "torch.nn.parallel.distributed.DistributedDataParallel.forward": ("faults.in_model",),
    "torch.nn.parallel.distributed.DistributedDataParallel.no_sync": ("replicas",),
    "torch.nn.parallel.distributed.DistributedDataParallel.register_comm_hook": ("training",),
    "torch.nn.utils.clip_grad.clip_grad_norm_": ("replicas",),
    "torch.optim.lr_scheduler.ChainedScheduler.__init__": ("optimizers",),
    "torch.optim.lr_scheduler.ChainedScheduler.step": ("optimizers",),
    "torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.step": ("optimizers",),
    "torch.optim.lr_scheduler.LRScheduler.__init__": ("optimizers",),
    "torch.optim.lr_scheduler.LRScheduler.step": ("optimizers",),
    "torch.optim.lr_scheduler.ReduceLROnPlateau.__init__": ("optimizers",),
    "torch.optim.lr_scheduler.ReduceLROnPlateau.step": ("optimizers",),
    "torch.optim.lr_scheduler.SequentialLR.__init__": ("optimizers",),
    "torch.optim.lr_scheduler.SequentialLR.step": ("optimizers",),
    "torch.optim.optimizer.Optimizer.__init__": ("optimizers",),
    "torch.optim.optimizer.Optimizer.load_state_dict": ("training",),
    "torch.random.manual_seed": ("faults.in_data", "training"),
    "torch.random.set_rng_state": ("training",),
    "torch.save": ("training",),
    "torch.serialization.load": ("training",),
    "torch.serialization.save": ("training",),
    "torch.set_num_threads": ("phases",),
    "torch.utils.data.dataloader.DataLoader.__init__": ("data",),
    "torch.utils.data.dataloader.DataLoader.__iter__": ("data", "faults.in_data", "steps"),
    "torch.utils.data.dataloader._BaseDataLoaderIter.__next__": ("data", "faults.in_data", "steps"),
    "torch.utils.data.distributed.DistributedSampler.__init__": ("data",),
    "torch.utils.data.distributed.DistributedSampler.__iter__": ("data", "faults.in_data"),
    "torch.utils.data.distributed.DistributedSampler.set_epoch": ("data", "faults.in_data"),
    "torch.utils.data.sampler.BatchSampler.__iter__": ("faults.in_data",),
    "torch.utils.data.sampler.BatchSampler.__len__": ("faults.in_data",),
    "torch.utils.swap_tensors": ("replicas",),
}


def full_name(owner: Any, name: str) -> str:
    """``torch.utils.data.dataloader.DataLoader.__iter__``, of the class and the name."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}.{name}"
    return f"{owner.__module__}.{owner.__qualname__}.{name}"
