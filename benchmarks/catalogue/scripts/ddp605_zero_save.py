# expect: DDP605
# also: DDP301
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
import io

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class Checkpointer:
    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.best = float("inf")

    def state(self, step):
        if isinstance(self.optimizer, ZeroRedundancyOptimizer):
            self.optimizer.consolidate_state_dict(to=0)  # <- culprit
        return {"step": step, "model": self.model.module.state_dict(), "optim": self.optimizer.state_dict()}

    def maybe_save(self, step, metric):
        if step % self.every:
            return
        if dist.get_rank() == 0:  # <- culprit
            blob = io.BytesIO()
            torch.save(self.state(step), blob)  # <- culprit
            print(f"step {step}: {metric:.3f}, checkpoint of {blob.tell()} bytes", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    ckpt = Checkpointer(model, optimizer, every=5)
    torch.manual_seed(1 + rank)
    for step in range(1, 13):
        x = torch.randn(8, 12)
        loss = nn.functional.mse_loss(model(x), x.norm(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        ckpt.maybe_save(step, mean.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
