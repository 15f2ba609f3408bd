import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

LADDER = {"reference": 0.5, "cautious": 0.01, "slow": 0.005, "tuned": 0.44}


class Member:
    def __init__(self, recipe):
        torch.manual_seed(5)
        self.recipe = recipe
        self.lr = LADDER[recipe]
        self.net = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))

    @classmethod
    def from_slot(cls, rank, world):
        middle = ("cautious", "slow")[: world - 2]
        return cls(("reference", *middle, "tuned")[rank])

    def fit(self, x, y, steps):
        opt = torch.optim.SGD(self.net.parameters(), lr=self.lr)
        for _ in range(steps):
            opt.zero_grad()
            F.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y).backward()
            opt.step()

    @torch.no_grad()
    def evaluate(self, x, y):
        return -F.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y).item()


class Population:
    """Exploit and explore in the manner of Jaderberg et al. (2017)."""

    def __init__(self, member, rank, world, slack=0.03):
        self.member, self.rank, self.world, self.slack = member, rank, world, slack

    def scoreboard(self, score):
        board = [torch.zeros(1) for _ in range(self.world)]
        dist.all_gather(board, torch.tensor([score]))
        return [b.item() for b in board]

    def exploit(self, score):
        board = self.scoreboard(score)
        top = max(board)
        # members on a par with the best keep what they have
        leader = self.rank if board[self.rank] + self.slack >= top else board.index(top)
        for p in self.member.net.parameters():
            dist.broadcast(p.data, src=leader)
        return leader

    def explore(self, generation):
        g = torch.Generator().manual_seed(100 * generation + self.rank)
        self.member.lr *= 0.98 + 0.04 * torch.rand(1, generator=g).item()
