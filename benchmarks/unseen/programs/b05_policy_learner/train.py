import torch
import torch.distributed as dist
from torch import nn

from rl.learner import Learner
from rl.utils import rollout

cfg = dict(lr=3e-3, entropy=0.01, grad_clip_value=0.5, multi_gpu=True, updates=12)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
    learner = Learner(policy, cfg)
    for update in range(cfg["updates"]):
        stats = learner.update(rollout(rank, update))
        if rank == 0 and update % 4 == 0:
            print(f"update {update}", {k: round(v, 4) for k, v in stats.items()})
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
