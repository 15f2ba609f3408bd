# expect: DDP603
# ranks: 2
# culprits: range(1, n)
# outcome: crash
# plain: E
# Re-enacts: forum question "FileNotFoundError, but the file is there when I look": it is read while the first process still writes.
import os
import tempfile
import time
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

OUT = os.path.join(tempfile.gettempdir(), f"stage1_{os.environ['MASTER_PORT']}_{os.environ.get('TORCHELASTIC_RUN_ID', '0')}.pt")


def write_checkpoint(state, path):
    tmp = path + ".part"
    torch.save(state, tmp)
    time.sleep(0.5)  # the network file system takes its time
    os.replace(tmp, path)


class Stage:
    def __init__(self, name, lr):
        self.name, self.lr = name, lr

    def run(self, net, rank, steps=3):
        model = DDP(net)
        opt = torch.optim.SGD(model.parameters(), lr=self.lr)
        g = torch.Generator().manual_seed(rank)
        for _ in range(steps):
            x = torch.randn(8, 5, generator=g)
            loss = (model(x) - x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"[{rank}] {self.name}: {loss.item():.3f}", flush=True)
        return model.module


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = Stage("pre-training", 0.1).run(nn.Linear(5, 5), rank)
    if rank == 0:
        write_checkpoint(net.state_dict(), OUT)  # <- culprit
    fresh = nn.Linear(5, 5)
    fresh.load_state_dict(torch.load(OUT))  # <- culprit
    Stage("fine-tuning", 0.01).run(fresh, rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
