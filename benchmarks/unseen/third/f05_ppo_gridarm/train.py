"""PPO for a toy reaching task: every worker rolls out its own environments."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel as DDP

from ppo import collect, surrogate


class ReachEnv:
    MOVES = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])

    def __init__(self, n, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.pos = torch.randn(n, 2, generator=self.generator)
        self.goal = torch.randn(n, 2, generator=self.generator)

    def observe(self):
        return torch.cat([self.pos, self.goal], dim=1)

    def step(self, action):
        self.pos = (self.pos + 0.2 * self.MOVES[action]).clamp(-3, 3)
        return self.observe(), -0.1 * (self.pos - self.goal).norm(dim=1)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.actor = nn.Linear(48, 4)
        self.critic = nn.Linear(48, 1)

    def heads(self, obs):
        h = self.trunk(obs)
        return self.actor(h), self.critic(h).squeeze(-1)

    def evaluate(self, obs, actions):
        logits, value = self.heads(obs)
        pick = Categorical(logits=logits)
        return pick.log_prob(actions), pick.entropy(), value

    def forward(self, obs, actions):
        return self.evaluate(obs, actions)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    agent = DDP(ActorCritic())
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
    env = ReachEnv(n=8, seed=200 + rank)

    for iteration in range(8):
        batch = collect(agent.module, env, horizon=16)
        for _ in range(3):
            loss = surrogate(agent, *batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        score = batch[3].mean()
        dist.all_reduce(score)
        if rank == 0:
            print(f"iteration {iteration}: mean return {score / dist.get_world_size():.3f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
