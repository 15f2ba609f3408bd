# expect: DDP305
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: T
# Population based training: every rank trains its own model, after a round all copy the leader.
import torch
import torch.distributed as dist
import torch.nn.functional as F


def make_task(rank):
    gen = torch.Generator().manual_seed(40 + rank)
    x = torch.randn(64, 4, generator=gen)
    return x, x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])


def polish(net, x, y, steps):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()


class Member:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        torch.manual_seed(100 + rank)
        self.net = torch.nn.Linear(4, 1)
        self.lr = 0.05 if rank < world - 1 else 0.001
        self.x, self.y = make_task(rank)

    def train(self, steps=10):
        opt = torch.optim.SGD(self.net.parameters(), lr=self.lr)
        for _ in range(steps):
            opt.zero_grad()
            F.mse_loss(self.net(self.x), self.y).backward()
            opt.step()

    @torch.no_grad()
    def score(self):
        return -F.mse_loss(self.net(self.x), self.y).item()


class Population:
    def __init__(self, member):
        self.me = member
        self.scores = {}

    def collect(self):
        table = [None] * self.me.world
        dist.all_gather_object(table, (self.me.rank, self.me.score()))
        self.scores = dict(table)

    def needs_polish(self):
        return self.me.score() < -8.0

    def refine_weak_members(self):
        if self.needs_polish():
            polish(self.me.net, self.me.x, self.me.y, steps=60)
            self.scores[self.me.rank] = self.me.score()  # <- culprit

    def leader(self):
        return max(self.scores, key=self.scores.get)  # <- culprit

    def exploit(self):
        src = self.leader()  # <- culprit
        with torch.no_grad():
            for p in self.me.net.parameters():
                dist.broadcast(p.data, src=src)  # <- culprit
        return src


def run():
    dist.init_process_group("gloo")
    member = Member(dist.get_rank(), dist.get_world_size())
    pop = Population(member)
    for round_no in range(2):
        member.train()
        pop.collect()
        pop.refine_weak_members()
        src = pop.exploit()
        print(f"[{member.rank}] round {round_no}: leader {src} score {member.score():.4f}", flush=True)
    dist.destroy_process_group()


run()
