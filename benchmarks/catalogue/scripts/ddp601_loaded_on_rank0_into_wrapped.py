# expect: DDP601
# also: DDP405
# ranks: 2
# culprits: [0]
# outcome: divergence
# plain: S
# Re-enacts: question "loss jumps after resuming": the file is on the first machine only and is loaded into the wrapped model.
import os
import tempfile
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Translator(nn.Module):
    def __init__(self, vocab=20, dim=8):
        super().__init__()
        self.src = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.out(self.src(ids))


def write_old_checkpoint(path):
    """Result of last week's run, found on the disk of the first machine."""
    torch.manual_seed(99)
    torch.save({"model": Translator().state_dict(), "epoch": 3}, path)


def resume(model, path):
    if not os.path.exists(path):  # <- culprit
        return 0
    ckpt = torch.load(path, map_location="cpu")
    model.module.load_state_dict(ckpt["model"])  # <- culprit
    return ckpt["epoch"] + 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    local_disk = tempfile.mkdtemp(prefix=f"node{rank}_")
    path = os.path.join(local_disk, "last.pt")
    if rank == 0:
        write_old_checkpoint(path)
    torch.manual_seed(0)
    model = DDP(Translator())
    start = resume(model, path)  # <- culprit
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for step in range(4):
        ids = torch.randint(0, 20, (6, 5), generator=g)
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"[{rank}] (from epoch {start}) step {step}: {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
