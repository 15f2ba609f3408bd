import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from shards import ShardReader, publish_shard
from stopping import SharedStopper
from tuner import Tuner


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(55)
    root = [tempfile.mkdtemp(prefix="tuning_") if rank == 0 else None]
    dist.broadcast_object_list(root, src=0)
    reader = ShardReader(root[0], rank)
    publish_shard(root[0], rank)

    head = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.ReLU(), torch.nn.Linear(24, 4))
    tuner = Tuner(DDP(head), reader, SharedStopper(patience=2, delta=2e-3))
    try:
        epochs = tuner.run(limit=25)
        print(f"rank {rank}: stopped after {epochs}, {reader.attempts} attempts to read", flush=True)
    finally:
        dist.barrier()
        if rank == 0:
            reader.remove_all()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
