# expect: DDP307
# ranks: 4
# culprits: n-1
# outcome: hang
# plain: T
import torch
import torch.distributed as dist
from torch import nn


class Stage(nn.Module):
    """One stage of a pipeline, a rank each."""

    def __init__(self, width=6):
        super().__init__()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.layer = nn.Linear(width, width)
        self.width = width

    @property
    def is_last(self):
        return self.rank == self.size - 1

    def upstream(self):
        # the last stage was written when the pipeline had three stages
        return 1 if self.is_last else self.rank - 1  # <- culprit

    def run(self, micro_batch):
        if self.rank == 0:
            x = micro_batch
        else:
            x = torch.empty(4, self.width)
            dist.recv(x, src=self.upstream())  # <- culprit
        y = self.layer(x).relu().detach()
        if self.is_last:
            return y.mean().item()
        dist.send(y, dst=self.rank + 1)
        return None


if __name__ == "__main__":
    dist.init_process_group("gloo")
    stage = Stage()
    results = [stage.run(torch.randn(4, 6)) for _ in range(3)]
    if stage.is_last:
        print(results)
    dist.destroy_process_group()
