"""Device meshes that not all ranks make."""
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh


def of_members(rank):
    pair = [0, 1] if rank < 2 else [2, 3]
    mesh = DeviceMesh("cpu", torch.tensor([pair]), mesh_dim_names=("dp", "tp"))
    dist.all_reduce(torch.ones(4), group=mesh.get_group("tp"))
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
