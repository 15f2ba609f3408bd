# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: GAN / league training over sub-groups (fairseq, Megatron style): teams of other speed and other numbers of collectives
import argparse

import torch
import torch.distributed as dist
from torch import nn


class Team:
    def __init__(self, name, ranks, rounds):
        self.name, self.ranks, self.rounds = name, ranks, rounds
        self.group = dist.new_group(ranks)

    def __contains__(self, rank):
        return rank in self.ranks

    @property
    def captain(self):
        return self.ranks[0]


class Player:
    def __init__(self, team, rank, dim=5):
        self.team = team
        torch.manual_seed(len(team.name))  # the same start in a team
        self.net = nn.Linear(dim, 1)
        self.gen = torch.Generator().manual_seed(rank)

    def practise(self):
        for _ in range(self.team.rounds):
            x = torch.randn(6, 5, generator=self.gen)
            loss = (self.net(x) - x.max(1, keepdim=True).values).pow(2).mean()
            self.net.zero_grad()
            loss.backward()
            for p in self.net.parameters():
                dist.all_reduce(p.grad, group=self.team.group)
                p.data.add_(p.grad, alpha=-0.05 / len(self.team.ranks))
        return loss.detach()


def captains_meeting(player, captains, captains_group, rank):
    """Only the captains talk; then each tells its own team."""
    news = torch.zeros(2)
    if rank in captains:
        strength = player.net.weight.detach().norm().reshape(1)
        table = [torch.zeros(1) for _ in captains]
        dist.all_gather(table, strength, group=captains_group)
        news = torch.cat(table)
        dist.broadcast(news, src=player.team.captain, group=player.team.group)
    else:
        dist.broadcast(news, src=player.team.captain, group=player.team.group)
    return news


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seasons", type=int, default=2)
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    everyone = list(range(world))
    teams = [Team("attack", everyone[0::2], rounds=3), Team("defence!", everyone[1::2], rounds=7)]
    captains = [t.captain for t in teams]
    captains_group = dist.new_group(captains)
    player = Player(next(t for t in teams if rank in t), rank)
    for season in range(args.seasons):
        loss = player.practise()
        news = captains_meeting(player, captains, captains_group, rank)
        total = loss.clone()
        dist.reduce(total, dst=0)
        if rank == 0:
            print(f"season {season}: {news.tolist()} loss {total.item() / world:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
