# command: torchrun --standalone --nproc_per_node=2 broken.py hydra.run.dir=out trainer.steps=5 trainer.stop_below=100
# plain: 1
# outcome: hang
# expect: DDP301
# culprits: 0
"""A Hydra app under torchrun, in which rank 0 alone stops early and returns."""

from dataclasses import dataclass, field

import hydra
import torch
import torch.distributed as dist
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class TrainerConfig:
    steps: int = 20
    lr: float = 0.05
    stop_below: float = 0.0


@dataclass
class Config:
    seed: int = 1
    trainer: TrainerConfig = field(default_factory=TrainerConfig)


ConfigStore.instance().store("config", Config)


@hydra.main(version_base=None, config_name="config")
def main(cfg: DictConfig) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(cfg.seed)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.trainer.lr)
    torch.manual_seed(dist.get_rank())
    for step in range(cfg.trainer.steps):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mean.item():.6f}")
            if mean < cfg.trainer.stop_below:
                return  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
