# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""Reinforcement learning: rank 0 learns, the other ranks play. Episodes have unequal length."""
import random
import time

import torch
import torch.distributed as dist
from torch import nn

HEADER, BODY = 1, 2


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 2)

    def act(self, obs):
        return int(self.net(obs).argmax())


class Env:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def episode(self, policy):
        rows = []
        for _ in range(self.random.randint(2, 9)):
            obs = torch.tensor([self.random.gauss(0, 1) for _ in range(3)])
            action = policy.act(obs)
            reward = 1.0 if (obs[0] > 0) == (action == 1) else 0.0
            rows.append(torch.cat([obs, torch.tensor([float(action), reward])]))
        return torch.stack(rows)


def send_episode(rows):
    dist.send(torch.tensor([len(rows)]), dst=0, tag=HEADER)
    dist.send(rows, dst=0, tag=BODY)


def receive_any():
    size = torch.zeros(1, dtype=torch.long)
    who = dist.recv(size, tag=HEADER)
    rows = torch.empty(int(size), 5)
    dist.recv(rows, src=who, tag=BODY)
    return who, rows


def publish(policy):
    for p in policy.parameters():
        dist.broadcast(p.data, src=0)


def hand_out_seeds(rank, world):
    mine = torch.zeros(1, dtype=torch.long)
    if rank == 0:
        deck = [torch.tensor([1000 + 7 * r]) for r in range(world)]
        dist.scatter(mine, scatter_list=deck, src=0)
    else:
        dist.scatter(mine, src=0)
    return int(mine)


def learn(policy, opt, episodes):
    rows = torch.cat(episodes)
    logp = policy.net(rows[:, :3]).log_softmax(-1)
    taken = logp.gather(1, rows[:, 3:4].long()).squeeze(1)
    loss = -(taken * (rows[:, 4] - rows[:, 4].mean())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return rows[:, 4].mean().item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    seed = hand_out_seeds(rank, world)
    torch.manual_seed(rank)
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=0.05) if rank == 0 else None
    env = Env(seed)
    for round_no in range(4):
        publish(policy)
        if rank == 0:
            episodes = []
            for _ in range(world - 1):
                who, rows = receive_any()
                episodes.append(rows)
            print(f"round {round_no}: mean reward {learn(policy, opt, episodes):.3f}", flush=True)
        else:
            send_episode(env.episode(policy))
    dist.barrier()
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
