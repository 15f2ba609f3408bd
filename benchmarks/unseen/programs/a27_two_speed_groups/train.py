import time

import torch
import torch.distributed as dist
from torch import nn

from roles import assign


def average(values, group, n):
    dist.all_reduce(values, group=group)
    return values / n


class Actor:
    def __init__(self, role, policy):
        self.role, self.policy = role, policy
        self.gen = torch.Generator().manual_seed(dist.get_rank())

    def play(self):
        obs = torch.randn(20, 4, generator=self.gen)
        with torch.no_grad():
            act = self.policy(obs).argmax(1)
        reward = (obs[:, 0] > 0).long().eq(act).float().mean().reshape(1)
        return average(reward, self.role.group, len(self.role.members))


class Learner:
    def __init__(self, role, policy):
        self.role, self.policy = role, policy
        self.opt = torch.optim.SGD(policy.parameters(), lr=0.5)
        self.gen = torch.Generator().manual_seed(dist.get_rank())

    def play(self):
        obs = torch.randn(64, 4, generator=self.gen)
        loss = nn.functional.cross_entropy(self.policy(obs), (obs[:, 0] > 0).long())
        self.opt.zero_grad()
        loss.backward()
        for p in self.policy.parameters():
            p.grad = average(p.grad, self.role.group, len(self.role.members))
        self.opt.step()
        return average(loss.detach().reshape(1), self.role.group, len(self.role.members))


def main():
    dist.init_process_group("gloo")
    role, everyone = assign()
    torch.manual_seed(0)
    policy = nn.Linear(4, 2)
    worker = {"actor": Actor, "learner": Learner}[role.name](role, policy)
    for cycle in range(4):
        for _ in range(role.rounds):
            time.sleep(role.pause)
            value = worker.play()
        for p in policy.parameters():
            if role.name == "learner":
                dist.broadcast(p.data, src=dist.get_world_size() - 1, group=everyone)
            else:
                fresh = torch.empty_like(p)
                dist.broadcast(fresh, src=dist.get_world_size() - 1, group=everyone)
                p.data.copy_(fresh)
        if dist.get_rank() == role.members[0]:
            print(f"cycle {cycle} {role.name}: {value.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
