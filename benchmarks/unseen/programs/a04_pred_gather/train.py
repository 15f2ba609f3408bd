import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

from utils.dist import concat_all_gather, reduce_mean, setup


class Retrieval(nn.Module):
    def __init__(self, d_in=20, d_out=16):
        super().__init__()
        self.query = nn.Linear(d_in, d_out)
        self.key = nn.Linear(d_in, d_out)

    def forward(self, a, b):
        return F.normalize(self.query(a), dim=-1), F.normalize(self.key(b), dim=-1)


def build(rank, world, n_train=96, n_val=48):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n_train * world, 20, generator=g)
    train_set = TensorDataset(x, x + 0.1 * torch.randn(x.shape, generator=g))
    v = torch.randn(n_val * world - 5, 20, generator=g)
    val_set = TensorDataset(v, v + 0.1 * torch.randn(v.shape, generator=g))
    per_rank = -(-len(val_set) // world)
    mine = range(rank * per_rank, min((rank + 1) * per_rank, len(val_set)))
    sampler = DistributedSampler(train_set, seed=1)
    return (
        DataLoader(train_set, batch_size=24, sampler=sampler, drop_last=True),
        DataLoader(Subset(val_set, mine), batch_size=16),
        sampler,
    )


@torch.no_grad()
def validate(net, loader):
    net.eval()
    queries, keys = [], []
    for a, b in loader:
        q, k = net(a, b)
        queries.append(concat_all_gather(q))
        keys.append(concat_all_gather(k))
    sims = torch.cat(queries) @ torch.cat(keys).t()
    hit = sims.argmax(dim=1) == torch.arange(sims.size(0))
    return hit.float().mean().item()


def main():
    rank, world = setup()
    torch.manual_seed(5)
    train_loader, val_loader, sampler = build(rank, world)
    net = DDP(Retrieval())
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        net.train()
        for a, b in train_loader:
            q, k = net(a, b)
            loss = F.cross_entropy(q @ k.t() / 0.07, torch.arange(q.size(0)))
            opt.zero_grad()
            loss.backward()
            opt.step()
        mean_loss = reduce_mean(loss.detach())
        recall = validate(net, val_loader)
        if rank == 0:
            print(f"epoch {epoch} loss {mean_loss:.3f} recall@1 {recall:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
