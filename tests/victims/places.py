"""Groups that are known by more than their members: of a mesh, or written in Python."""
import sys
import threading

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


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
