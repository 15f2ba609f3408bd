"""Groups that are known by more than their members: of a mesh, or written in Python."""
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


class Managed(dist.ProcessGroup):
    @property
    def group_name(self):
        raise ValueError("ProcessGroup name not set")

    def allreduce(self, tensors, opts=None):
        threading.Event().wait()  # culprit: managed


def managed(rank):
    if rank == 1:
        dist.all_reduce(torch.ones(4), group=Managed(0, 1))
    dist.barrier()  # waiting: managed


def tensor_parallel(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for step in range(4):
        dist.all_reduce(torch.ones(4), group=mesh.get_group("dp"))
        if step == 3 and rank == 3:
            return  # culprit: tensor_parallel
        dist.all_reduce(torch.ones(4), group=mesh.get_group("tp"))  # waiting: tensor_parallel


def reconfigured(rank):
    """Healthy: the first rank leaves the group, which gets other members, and waits for these by other means."""
    store = dist.distributed_c10d._get_default_store()

    def meet(epoch, ranks):
        store.set(f"{epoch}/{rank}", dist._get_reconfigure_handle())
        dist._reconfigure(epoch, [store.get(f"{epoch}/{one}").decode() for one in ranks]).wait()

    meet(1, range(4))
    dist.all_reduce(torch.ones(4))
    if rank > 0:
        meet(2, range(1, 4))
        if rank == 1:
            time.sleep(5)
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
        store.set(f"done/{rank}", "")
    for one in range(1, 4):
        store.get(f"done/{one}")


if __name__ == "__main__":
    dist.init_process_group("gloo", **({"enable_reconfigure": True} if sys.argv[1] == "reconfigured" else {}))
    globals()[sys.argv[1]](dist.get_rank())
