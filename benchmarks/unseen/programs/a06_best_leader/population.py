import torch
import torch.distributed as dist


class Population:
    """Population based training: one member per rank, the worst copies the best."""

    def __init__(self, model, decay=0.6):
        self.model = model
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.scores = {r: float("inf") for r in range(self.world)}
        self.decay = decay
        self.history = []

    def report(self, score):
        everyone = [None] * self.world
        dist.all_gather_object(everyone, score)
        for r, s in enumerate(everyone):
            old = self.scores[r]
            self.scores[r] = s if old == float("inf") else self.decay * old + (1 - self.decay) * s

    def bonus(self, amount):
        self.scores[self.rank] -= amount

    @property
    def leader(self):
        return min(self.scores, key=self.scores.get)

    @torch.no_grad()
    def exploit(self):
        best = self.leader
        self.history.append(best)
        for p in self.model.parameters():
            copy = p.detach().clone()
            dist.broadcast(copy, src=best)
            if self.rank != best:
                p.lerp_(copy, 0.5)
