# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Log, progress and checkpoints on the first rank alone; barriers before and after what the others depend on."""

import csv
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Log:
    def __init__(self, path):
        self.file = open(path, "w", newline="")
        self.writer = csv.writer(self.file)
        self.writer.writerow(["step", "loss"])

    def __call__(self, step, loss):
        self.writer.writerow([step, f"{loss:.5f}"])
        self.file.flush()

    def close(self):
        self.file.close()


def is_main():
    return dist.get_rank() == 0


def prepare():
    folder = [None]
    if is_main():
        folder = [tempfile.mkdtemp(prefix="run-")]
        os.makedirs(os.path.join(folder[0], "checkpoints"))
    dist.broadcast_object_list(folder, src=0)
    return folder[0]


def main():
    dist.init_process_group("gloo")
    folder = prepare()
    log = Log(os.path.join(folder, "log.csv")) if is_main() else None
    model = DDP(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(dist.get_rank())
    for step in range(12):
        x = torch.randn(8, 4, generator=g)
        loss = nn.functional.mse_loss(model(x), x.sort(1).values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if log:
            log(step, loss.item())
        if step % 4 == 3:
            path = os.path.join(folder, "checkpoints", f"{step}.pt")
            if is_main():
                torch.save(model.module.state_dict(), path)
            dist.barrier()
            model.module.load_state_dict(torch.load(path))
    dist.barrier()
    if log:
        log.close()
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
