# expect: DDP309
# ranks: 2 4
# culprits: 1
# outcome: divergence
# plain: S
"""Actor and critic have layers of the same shape; gradients are averaged by hand."""

import torch
import torch.distributed as dist
from torch import nn


class Agent:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.actor = nn.Linear(4, 3, bias=False)
        self.critic = nn.Linear(4, 3, bias=False)
        self.opt = torch.optim.SGD([*self.actor.parameters(), *self.critic.parameters()], lr=0.1)

    def average_actor(self):
        grad = self.actor.weight.grad
        dist.all_reduce(grad)  # <- culprit
        grad /= dist.get_world_size()

    def average_critic(self):
        grad = self.critic.weight.grad
        dist.all_reduce(grad)  # <- culprit
        grad /= dist.get_world_size()

    def update(self, state, advantage, critic_first):
        log_policy = self.actor(state).log_softmax(1)
        value = self.critic(state)
        self.opt.zero_grad()
        (-(log_policy * advantage).mean() + (value - advantage).pow(2).mean()).backward()
        if critic_first:  # <- culprit
            self.average_critic()
            self.average_actor()
        else:
            self.average_actor()
            self.average_critic()
        self.opt.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    agent = Agent(seed=0)
    torch.manual_seed(50 + rank)
    for episode in range(6):
        # the episodes of rank 1 come from the replay memory, for the critic
        from_memory = rank == 1 and episode >= 2
        agent.update(torch.randn(16, 4), torch.randn(16, 3), critic_first=from_memory)
    print(rank, agent.actor.weight.norm().item(), agent.critic.weight.norm().item())
    dist.destroy_process_group()


main()
