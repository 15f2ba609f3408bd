# expect: DDP405
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""Low-rank adapters are put into a wrapped model; only they are trained."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class LowRank(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Linear(8, 8)
        self.layer2 = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer2(torch.relu(self.layer1(x)))


def add_adapters(model: nn.Module) -> list[nn.Parameter]:
    model.layer1 = LowRank(model.layer1)  # <- culprit
    return [*model.layer1.down.parameters(), *model.layer1.up.parameters()]


class Trainer:
    def __init__(self, seed: int = 17) -> None:
        torch.manual_seed(seed + dist.get_rank())
        self.model = DDP(Model())  # <- culprit
        trainable = add_adapters(self.model.module)  # <- culprit
        self.optimizer = torch.optim.AdamW(trainable, lr=1e-2)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            x, y = torch.randn(8, 8), torch.randint(0, 3, (8,))
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main() -> None:
    dist.init_process_group("gloo")
    Trainer().run(10)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
