# expect: DDP109
# also: DDP507
# ranks: 2 4
# culprits: range(n)
# outcome: hang
# plain: T
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Sentences(Dataset):
    def __init__(self, count=64):
        gen = torch.Generator().manual_seed(5)
        self.rows = [torch.randint(1, 30, (int(n),), generator=gen)
                     for n in torch.randint(3, 9, (count,), generator=gen)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], float(self.rows[i].float().mean() > 15)


def longest_anywhere(length):
    """All ranks pad to the same length, otherwise the compiled kernels are built again and again."""
    if not dist.is_initialized():
        return length
    longest = torch.tensor(length)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)  # <- culprit
    return int(longest)


class PadCollate:
    def __init__(self, pad=0, align=True):
        self.pad, self.align = pad, align

    def __call__(self, batch):
        rows, labels = zip(*batch)
        width = max(len(r) for r in rows)
        if self.align:
            width = longest_anywhere(width)  # <- culprit
        out = torch.full((len(rows), width), self.pad)
        for i, r in enumerate(rows):
            out[i, :len(r)] = r
        return out, torch.tensor(labels)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(30, 8, padding_idx=0)
        self.out = nn.Linear(8, 1)

    def forward(self, tokens):
        return self.out(self.emb(tokens)).squeeze(-1)


def make_loader(dataset, batch_size):
    sampler = DistributedSampler(dataset, shuffle=True, seed=3)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=1,
                      collate_fn=PadCollate(), multiprocessing_context="fork")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Bag())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss_fn = nn.BCEWithLogitsLoss()
    loader = make_loader(Sentences(), batch_size=8)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for tokens, labels in loader:  # <- culprit
            opt.zero_grad()
            loss_fn(model(tokens), labels).backward()
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, "done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
