import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import checkpoint

SRC, TGT, LENGTH = 40, 40, 8


def sentence_pairs(n, seed):
    """'Translation' is a fixed substitution of the words, in reverse order."""
    g = torch.Generator().manual_seed(seed)
    table = torch.randperm(TGT, generator=torch.Generator().manual_seed(99))
    src = torch.randint(0, SRC, (n, LENGTH), generator=g)
    return TensorDataset(src, table[src].flip(1))


class Translator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.src = nn.Embedding(SRC, width)
        self.pos = nn.Embedding(LENGTH, width)
        self.mix = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, TGT)

    def forward(self, ids):
        return self.out(self.mix(self.src(ids) + self.pos.weight))


def train_epochs(model, optimizer, loader, sampler, first, last, path):
    for epoch in range(first, last):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for src, tgt in loader:
            logits = model(src)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tgt.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.reduce(total, dst=0)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {(total[0] / total[1]).item():.3f}")
        checkpoint.save(path, model, optimizer, epoch)


def build(lr=3e-3):
    torch.manual_seed(0)
    model = DDP(Translator())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=lr)
    return model, optimizer


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp(prefix="translation-") if rank == 0 else ""]
    dist.broadcast_object_list(folder, src=0)
    path = os.path.join(folder[0], "last.pt")

    data = sentence_pairs(390, 0)
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model, optimizer = build()
    train_epochs(model, optimizer, loader, sampler, checkpoint.load_latest(path, model, optimizer), 2, path)

    model, optimizer = build()
    first = checkpoint.load_latest(path, model, optimizer)
    train_epochs(model, optimizer, loader, sampler, first, 4, path)
    if rank == 0:
        print("resumed at", first, "final checkpoint", os.path.getsize(path))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
