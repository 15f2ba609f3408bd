# expect: DDP101
# also: DDP104
# ranks: 2 4
# culprits: any
# outcome: any
# plain: T
import datetime
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

JOB = {"name": "protein-contact-small", "user": "lena", "base_port": 21000, "ports": 9000}


def port_of(job):
    """Several jobs share the machine: each gets its own port, derived from its name."""
    return job["base_port"] + hash((job["name"], job["user"])) % job["ports"]  # <- culprit


def defaults():
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port_of(JOB)),  # <- culprit
            "GLOO_SOCKET_IFNAME": "lo", "TORCHELASTIC_USE_AGENT_STORE": "False"}


def connect():
    os.environ.update(defaults())  # <- culprit
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=10))  # <- culprit
    return dist.get_rank(), dist.get_world_size()


class ContactNet(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.left = nn.Linear(20, dim)
        self.right = nn.Linear(20, dim)

    def forward(self, seq):
        return self.left(seq) @ self.right(seq).transpose(1, 2)


def proteins(rank, batches=3):
    g = torch.Generator().manual_seed(100 + rank)
    for _ in range(batches):
        kinds = torch.randint(0, 20, (2, 9), generator=g)
        seq = nn.functional.one_hot(kinds, 20).float()
        contact = (torch.rand(2, 9, 9, generator=g) > 0.8).float()
        yield seq, contact


def main():
    rank, world = connect()
    print(f"{socket.gethostname()}: {rank} of {world}", flush=True)
    torch.manual_seed(0)
    model = DDP(ContactNet())
    opt = torch.optim.Adam(model.parameters())
    for seq, contact in proteins(rank):
        opt.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(seq), contact)
        loss.backward()
        opt.step()
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
