# expect: DDP407
# ranks: 2
# culprits: range(n)
# outcome: divergence
# plain: S
# Re-enacts: issue "calls to the module's *_step methods bypass the DDP wrapper" in a light trainer.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class LitModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)  # <- culprit

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Fabric:
    def __init__(self):
        dist.init_process_group("gloo")
        self.global_rank = dist.get_rank()

    def setup(self, module):
        self.optimizer = module.configure_optimizers()
        self.module = module
        return DistributedDataParallel(module)

    def run(self, model, batches):
        for batch in batches:
            self.optimizer.zero_grad()
            loss = model.module.training_step(batch)  # <- culprit
            loss.backward()
            self.optimizer.step()
        return loss.item()


def batches(rank, n=6):
    g = torch.Generator().manual_seed(1000 + rank)
    for _ in range(n):
        x = torch.randn(16, 10, generator=g)
        yield x, (x.sum(1) > 0).long()


torch.manual_seed(42)
fabric = Fabric()
model = fabric.setup(LitModel())
final = fabric.run(model, batches(fabric.global_rank))  # <- culprit
print(f"[{fabric.global_rank}] {final:.4f}")
dist.barrier()
dist.destroy_process_group()
