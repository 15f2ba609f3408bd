# expect: DDP502
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Clips(Dataset):
    """Audio clips of unlike length."""

    def __init__(self, n=96):
        g = torch.Generator().manual_seed(11)
        self.length = torch.randint(4, 20, (n,), generator=g).tolist()
        self.clip = [torch.randn(k, 3, generator=g) for k in self.length]

    def __len__(self):
        return len(self.clip)

    def __getitem__(self, i):
        return self.clip[i]


class BucketBatches:
    """Batches of clips of about the same length, out of what the sampler hands this rank."""

    def __init__(self, sampler, lengths, batch_size, window=24):
        self.sampler, self.lengths, self.batch_size, self.window = sampler, lengths, batch_size, window

    def __iter__(self):
        todo = []
        for i in self.sampler:
            todo.append(i)
            if len(todo) == self.window:
                yield from self.cut(todo)
                todo = []
        yield from self.cut(todo)

    def cut(self, idx):
        idx = sorted(idx, key=self.lengths.__getitem__)
        for k in range(0, len(idx), self.batch_size):
            yield idx[k : k + self.batch_size]

    def __len__(self):
        return len(self.sampler) // self.batch_size


def collate(clips):
    return nn.utils.rnn.pad_sequence(clips, batch_first=True)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 8, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


def main(epochs=3):
    dist.init_process_group("gloo")
    data = Clips()
    batches = BucketBatches(DistributedSampler(data, shuffle=True), data.length, batch_size=4)
    loader = DataLoader(data, batch_sampler=batches, collate_fn=collate)
    model = DDP(AutoEncoder())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        if isinstance(loader.sampler, DistributedSampler):  # <- culprit
            loader.sampler.set_epoch(epoch)
        for x in loader:  # <- culprit
            loss = (model(x) - x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", round(loss.item(), 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
