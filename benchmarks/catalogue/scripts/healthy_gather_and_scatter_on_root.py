# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""The lists of gather and scatter exist on the first rank alone, as they should."""

import torch
import torch.distributed as dist


class Evolution:
    """Candidates are scored where they were sent, and bred on the first rank."""

    def __init__(self, size):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.mine = torch.zeros(size)
        if self.rank == 0:
            g = torch.Generator().manual_seed(1)
            self.population = [torch.randn(size, generator=g) for _ in range(self.world)]

    def generation(self):
        dist.scatter(self.mine, self.population if self.rank == 0 else None, src=0)
        score = -(self.mine - torch.arange(len(self.mine))).square().sum().reshape(1)
        if self.rank == 0:
            scores = [torch.empty(1) for _ in range(self.world)]
            dist.gather(score, scores, dst=0)
            best = self.population[int(torch.cat(scores).argmax())]
            self.population = [best + 0.3 * torch.randn_like(best) * (i > 0) for i in range(self.world)]
            return max(scores).item()
        dist.gather(score, dst=0)
        return None


dist.init_process_group("gloo")
evolution = Evolution(size=6)
for number in range(15):
    best = evolution.generation()
    if best is not None and number % 5 == 0:
        print(f"generation {number}: {best:.3f}", flush=True)
dist.destroy_process_group()
