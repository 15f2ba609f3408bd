# expect: DDP105
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
import os
import socket

import torch
import torch.distributed as dist


def reserve_port():
    """Bind a port so that nobody else takes it; the socket lives until the store is up."""
    holder = socket.socket(socket.AF_INET6)
    holder.bind(("::", int(os.environ["MASTER_PORT"]) + 23))
    holder.listen()
    return holder, holder.getsockname()[1]


def open_store(rank, size):
    port = int(os.environ["MASTER_PORT"]) + 23
    return dist.TCPStore("127.0.0.1", port, size, is_master=rank == 0)  # <- culprit


rank = int(os.environ["RANK"])
size = int(os.environ["WORLD_SIZE"])
if rank == 0:
    reserved, number = reserve_port()  # <- culprit
    print("rendezvous on port", number)
store = open_store(rank, size)
dist.init_process_group("gloo", store=store, rank=rank, world_size=size)

histogram = torch.histc(torch.randn(1000), bins=10, min=-3, max=3)
dist.reduce(histogram, dst=0)
if rank == 0:
    print(histogram.tolist())
dist.destroy_process_group()
