# expect: DDP303
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: A
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(7, 4)

    def forward(self, x):
        return nn.functional.normalize(self.layer(x), dim=1)


def my_part(data):
    rank, size = dist.get_rank(), dist.get_world_size()
    return Subset(data, range(rank, len(data), size))


def embed_all(net, data, batch_size=4):
    size = dist.get_world_size()
    out = []
    for (x,) in DataLoader(my_part(data), batch_size=batch_size):
        local = net(x)
        everybody = [torch.zeros_like(local) for _ in range(size)]
        dist.all_gather(everybody, local)  # <- culprit
        out += everybody
    return torch.cat(out)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Embedder().eval()
# one item short of a multiple of the batch
items = TensorDataset(torch.randn(12 * dist.get_world_size() - 1, 7))
with torch.no_grad():
    vectors = embed_all(net, items)
print(dist.get_rank(), vectors.shape)
dist.destroy_process_group()
