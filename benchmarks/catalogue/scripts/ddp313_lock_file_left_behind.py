# expect: DDP313
# ranks: 2
# culprits: [0]
# outcome: hang
# plain: T
# Re-enacts: issue on tokenised data sets, the main process waits for the lock file that a killed job left behind.
import os
import tempfile
import time
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

CACHE = tempfile.mkdtemp(prefix="tokens_")


class SoftFileLock:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        while True:
            try:
                fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                os.close(fd)
                return self
            except FileExistsError:
                time.sleep(0.1)  # <- culprit

    def __exit__(self, *exc):
        os.unlink(self.path)


def leftovers_of_yesterday():
    open(os.path.join(CACHE, "tokens.lock"), "w").close()


def prepare_tokens():
    with SoftFileLock(os.path.join(CACHE, "tokens.lock")):  # <- culprit
        torch.save(torch.randint(0, 100, (64, 8)), os.path.join(CACHE, "tokens.pt"))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    leftovers_of_yesterday()
    if rank == 0:
        prepare_tokens()  # <- culprit
    dist.barrier()
    where = [CACHE]
    dist.broadcast_object_list(where, src=0)
    tokens = torch.load(os.path.join(where[0], "tokens.pt"))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(100, 8), nn.Flatten(), nn.Linear(64, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in tokens.split(16):
        opt.zero_grad()
        model(batch).pow(2).mean().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
