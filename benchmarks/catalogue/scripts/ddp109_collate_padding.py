# expect: DDP109
# ranks: 2 4
# culprits: range(n)
# outcome: hang
# plain: T
"""Language model on sentences of unlike length. All ranks pad to the same length so that step times agree."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCAB = 50


class Sentences(Dataset):
    def __init__(self, n=64):
        g = torch.Generator().manual_seed(5)
        lengths = torch.randint(3, 15, (n,), generator=g).tolist()
        self.items = [torch.randint(1, VOCAB, (k,), generator=g) for k in lengths]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def longest_everywhere(n):
    t = torch.tensor([n])
    dist.all_reduce(t, op=dist.ReduceOp.MAX)  # <- culprit
    return int(t)


def pad_batch(samples):
    width = longest_everywhere(max(len(s) for s in samples))  # <- culprit
    out = torch.zeros(len(samples), width, dtype=torch.long)
    for row, s in zip(out, samples):
        row[: len(s)] = s
    return out


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, VOCAB)

    def forward(self, tokens):
        return self.out(self.rnn(self.emb(tokens))[0])


def main():
    dist.init_process_group("gloo")
    data = Sentences()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, collate_fn=pad_batch,
                        num_workers=1, multiprocessing_context="fork")
    model = DDP(TinyLM())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            logits = model(batch[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=0)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
