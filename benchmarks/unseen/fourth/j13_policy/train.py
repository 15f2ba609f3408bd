import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from actor import Actor
from learner import Learner
from worlds import Corridor


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    actor = DDP(Actor(n_obs=6, n_act=3))
    torch.manual_seed(1000 + rank)
    learner = Learner(actor, Corridor(n_envs=16, seed=rank), lr=3e-3)

    for it in range(15):
        ret = torch.tensor([learner.iterate()])
        dist.all_reduce(ret)
        if rank == 0 and it % 5 == 0:
            print(f"it {it} return {ret.item() / dist.get_world_size():.3f}", flush=True)
    if rank == 0:
        print("weights", {k: round(v.norm().item(), 3) for k, v in actor.module.state_dict().items()},
              flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
