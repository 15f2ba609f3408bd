# expect: DDP404
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Two towers (query and document). The constructor for resuming registers them the other way round."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def tower():
    return nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 6))


class Retrieval(nn.Module):
    @classmethod
    def fresh(cls):
        self = cls()
        self.query = tower()
        self.document = tower()
        return self

    @classmethod
    def resumed(cls, query, document):
        self = cls()
        self.document = document  # <- culprit
        self.query = query  # <- culprit
        return self

    def forward(self, q, d):
        return nn.functional.normalize(self.query(q)) @ nn.functional.normalize(self.document(d)).T


class Trainer:
    def __init__(self, resume):
        torch.manual_seed(0)
        net = Retrieval.resumed(tower(), tower()) if resume else Retrieval.fresh()  # <- culprit
        self.model = DDP(net)  # <- culprit
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        torch.manual_seed(dist.get_rank())

    def epoch(self, steps):
        for _ in range(steps):
            q = torch.randn(6, 10)
            scores = self.model(q, q * 2 + 1) / 0.1
            loss = nn.functional.cross_entropy(scores, torch.arange(6))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    last = dist.get_rank() == dist.get_world_size() - 1  # this node was replaced in the night
    Trainer(resume=last).epoch(10)  # <- culprit
    dist.destroy_process_group()
