# command: python broken.py
# plain: hang
# outcome: hang
# expect: DDP301
# sides: 0 | 1
"""As PyG's distributed_batching.py: a GCN on batches of graphs, with mp.spawn and DDP, and a barrier on rank 0 only."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.lin = GCNConv(8, 16), GCNConv(16, 16), torch.nn.Linear(16, 2)

    def forward(self, data):
        x = self.conv1(data.x, data.edge_index).relu()
        x = self.conv2(x, data.edge_index).relu()
        return self.lin(global_mean_pool(x, data.batch))


def graphs(count):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        x = torch.randn(10, 8, generator=generator)
        yield Data(x=x, edge_index=torch.randint(0, 10, (2, 30), generator=generator), y=(x.sum() > 0).long().view(1))


def run(rank, world_size):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "12355")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    data = list(graphs(48))
    loader = DataLoader(data[:32], batch_size=8, sampler=DistributedSampler(data[:32], world_size, rank))
    torch.manual_seed(12345)
    model = DistributedDataParallel(GCN())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(3):
        model.train()
        total_loss = torch.zeros(2)
        for batch in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), batch.y)
            loss.backward()
            optimizer.step()
            total_loss += torch.tensor([loss.item() * batch.num_graphs, batch.num_graphs])
        dist.all_reduce(total_loss)
        if rank == 0:
            print(f"Epoch: {epoch:02d}, loss {(total_loss[0] / total_loss[1]).item():.6f}")
            model.eval()
            for batch in DataLoader(data[32:], batch_size=8):
                with torch.no_grad():
                    model.module(batch)
            dist.barrier()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(run, args=(2,), nprocs=2, join=True)
