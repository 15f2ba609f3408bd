# expect: DDP703
# ranks: 2
# culprits: range(n)
# outcome: ok
# plain: S
# Re-enacts: answer copied from a thread on tokenisation time-outs: old variables are exported at the top of the script.
import os

os.environ["NCCL_BLOCKING_WAIT"] = "1"  # <- culprit
os.environ["NCCL_ASYNC_ERROR_HANDLING"] = "0"  # <- culprit

import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build_data():
    g = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 32, (64, 6), generator=g)
    return TensorDataset(tokens)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(32, 12)
        self.rnn = nn.LSTM(12, 12, batch_first=True)
        self.out = nn.Linear(12, 32)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def main():
    dist.init_process_group("gloo")  # <- culprit
    data = build_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(LM())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (ids,) in loader:
            loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
