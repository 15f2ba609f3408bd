"""The functions that a rank's hooks replace, by their full names, each with the modules of the recorder that do it.

What other modules have imported by name is replaced there too (``bindings``).

A name that begins with an underscore is private: torch may drop it in any version. A hook of a function that is not
there is left out, and the run's Recording says so. ``tests/recorder/events/test_patched.py`` compares this table with torch
and with what a rank replaces. Beside these, a rank uses ``torch.library`` for the collectives (``door``), torch's own
registries of hooks (``group_hooks``, ``replicas``, ``bypass``) and of callbacks (``compilations``), ``sys.monitoring``
(``path``), and ``builtins.__import__`` while a script runs (``hidden_modules``).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

REPLACED: dict[str, tuple[str, ...]] = {
    "multiprocessing.process.BaseProcess.start": ("process.own_ranks",),
    "os._exit": ("events.training",),
    "os.abort": ("events.training",),
    "os.kill": ("events.training",),
    "random.setstate": ("events.training",),
    "subprocess.Popen.__init__": ("process.own_ranks",),
    "torch._C._distributed_c10d.FileStore.get": ("stacks.store_waits",),
    "torch._C._distributed_c10d.FileStore.wait": ("stacks.store_waits",),
    "torch._C._distributed_c10d.HashStore.get": ("stacks.store_waits",),
    "torch._C._distributed_c10d.HashStore.wait": ("stacks.store_waits",),
    "torch._C._distributed_c10d.TCPStore.__init__": ("events.phases",),
    "torch._C._distributed_c10d.TCPStore.get": ("stacks.store_waits",),
    "torch._C._distributed_c10d.TCPStore.wait": ("stacks.store_waits",),
    "torch.amp.grad_scaler.GradScaler.__init__": ("models.optimizers",),
    "torch.amp.grad_scaler.GradScaler.load_state_dict": ("events.training",),
    "torch.amp.grad_scaler.GradScaler.unscale_": ("models.replicas",),
    "torch.amp.grad_scaler.GradScaler.update": ("models.replicas",),
    "torch.autograd.backward": ("faults.in_model", "events.phases", "models.replicas", "events.steps"),
    "torch.compile": ("models.bypass", "events.compilations"),
    "torch.cuda.random.set_rng_state": ("events.training",),
    "torch.cuda.set_rng_state": ("events.training",),
    "torch.distributed.algorithms.join.Join.__enter__": ("events.data",),
    "torch.distributed.c10d_logger._get_msg_dict": ("collectives.group_hooks",),
    "torch.distributed.device_mesh.DeviceMesh.__init__": ("events.phases", "models.replicated"),
    "torch.distributed.distributed_c10d.destroy_process_group": ("events.phases",),
    "torch.distributed.distributed_c10d.init_process_group": ("events.phases",),
    "torch.distributed.distributed_c10d.new_group": ("events.phases",),
    "torch.distributed.distributed_c10d.PrefixStore.get": ("stacks.store_waits",),
    "torch.distributed.distributed_c10d.PrefixStore.wait": ("stacks.store_waits",),
    "torch.distributed.distributed_c10d.ProcessGroup._register_backend": ("collectives.group_hooks",),
    "torch.distributed.distributed_c10d.ProcessGroup._set_group_name": ("collectives.group_hooks",),
    "torch.distributed.distributed_c10d.ProcessGroup.merge_remote_group": ("collectives.group_hooks",),
    "torch.distributed.distributed_c10d.ProcessGroup.reconfigure": ("events.phases",),
    "torch.distributed.distributed_c10d.ProcessGroup.split_group": ("collectives.group_hooks",),
    "torch.distributed.distributed_c10d.rendezvous": ("events.phases",),
    "torch.distributed.distributed_c10d.Work.is_completed": ("collectives.door",),
    "torch.distributed.distributed_c10d.Work.wait": ("collectives.door",),
    "torch.distributed.rpc.init_rpc": ("events.phases",),
    "torch.distributed.tensor.DTensor.from_local": ("models.replicated",),
    "torch.load": ("events.training",),
    "torch.manual_seed": ("faults.in_data", "events.training"),
    "torch.multiprocessing.spawn.start_processes": ("process.own_ranks",),
    "torch.nn.modules.batchnorm.SyncBatchNorm.convert_sync_batchnorm": ("events.training",),
    "torch.nn.modules.module.Module.load_state_dict": ("events.training",),
    "torch.nn.parallel.distributed.DistributedDataParallel.__init__": (
        "faults.in_model",
        "events.phases",
        "models.replicas",
    ),
    "torch.nn.parallel.distributed.DistributedDataParallel.__setattr__": ("events.training",),
    "torch.nn.parallel.distributed.DistributedDataParallel._post_forward": ("models.replicas",),
    "torch.nn.parallel.distributed.DistributedDataParallel._pre_forward": ("models.replicas",),
    "torch.nn.parallel.distributed.DistributedDataParallel._register_builtin_comm_hook": ("events.training",),
    "torch.nn.parallel.distributed.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model": (
        "events.training",
    ),
    "torch.nn.parallel.distributed.DistributedDataParallel.forward": ("faults.in_model",),
    "torch.nn.parallel.distributed.DistributedDataParallel.no_sync": ("models.replicas",),
    "torch.nn.parallel.distributed.DistributedDataParallel.register_comm_hook": ("events.training",),
    "torch.nn.utils.clip_grad.clip_grad_norm_": ("models.replicas",),
    "torch.optim.lr_scheduler.ChainedScheduler.__init__": ("models.optimizers",),
    "torch.optim.lr_scheduler.ChainedScheduler.step": ("models.optimizers",),
    "torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.step": ("models.optimizers",),
    "torch.optim.lr_scheduler.LRScheduler.__init__": ("models.optimizers",),
    "torch.optim.lr_scheduler.LRScheduler.step": ("models.optimizers",),
    "torch.optim.lr_scheduler.ReduceLROnPlateau.__init__": ("models.optimizers",),
    "torch.optim.lr_scheduler.ReduceLROnPlateau.step": ("models.optimizers",),
    "torch.optim.lr_scheduler.SequentialLR.__init__": ("models.optimizers",),
    "torch.optim.lr_scheduler.SequentialLR.step": ("models.optimizers",),
    "torch.optim.optimizer.Optimizer.__init__": ("models.optimizers",),
    "torch.optim.optimizer.Optimizer.load_state_dict": ("events.training",),
    "torch.random.manual_seed": ("faults.in_data", "events.training"),
    "torch.random.set_rng_state": ("events.training",),
    "torch.save": ("events.training",),
    "torch.serialization.load": ("events.training",),
    "torch.serialization.save": ("events.training",),
    "torch.set_num_threads": ("events.phases",),
    "torch.utils.data.dataloader.DataLoader.__init__": ("events.data",),
    "torch.utils.data.dataloader.DataLoader.__iter__": ("events.data", "faults.in_data", "events.steps"),
    "torch.utils.data.dataloader._BaseDataLoaderIter.__next__": ("events.data", "faults.in_data", "events.steps"),
    "torch.utils.data.distributed.DistributedSampler.__init__": ("events.data",),
    "torch.utils.data.distributed.DistributedSampler.__iter__": ("events.data", "faults.in_data"),
    "torch.utils.data.distributed.DistributedSampler.set_epoch": ("events.data", "faults.in_data"),
    "torch.utils.data.sampler.BatchSampler.__iter__": ("faults.in_data",),
    "torch.utils.data.sampler.BatchSampler.__len__": ("faults.in_data",),
    "torch.utils.swap_tensors": ("models.replicas",),
}


def full_name(owner: Any, name: str) -> str:
    """``torch.utils.data.dataloader.DataLoader.__iter__``, of the class and the name."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}.{name}"
    return f"{owner.__module__}.{owner.__qualname__}.{name}"
