# expect: DDP409
# ranks: 2
# culprits: range(n)
# outcome: any
# plain: S
# Re-enacts: forum question on clipping: every process clips its own gradient, only then the gradients are averaged.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def average_gradients(model):
    size = float(dist.get_world_size())
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= size


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, obs):
        return self.pi(obs).log_softmax(-1)


def rollouts(rank, n=4):
    g = torch.Generator().manual_seed(rank)
    for _ in range(n):
        obs = torch.randn(32, 4, generator=g)
        actions = torch.randint(0, 2, (32,), generator=g)
        returns = torch.randn(32, generator=g) * (1 + 20 * rank)
        yield obs, actions, returns


def update(policy, opt, chunks, max_norm):
    opt.zero_grad()
    for obs, actions, returns in chunks:
        with policy.no_sync():
            logp = policy(obs)[torch.arange(len(actions)), actions]
            loss = -(logp * returns).mean() / len(chunks)
            loss.backward()
    norm = nn.utils.clip_grad_norm_(policy.parameters(), max_norm)  # <- culprit
    average_gradients(policy)  # <- culprit
    opt.step()
    return norm.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = DDP(Policy())
    opt = torch.optim.SGD(policy.parameters(), lr=0.1)
    for it in range(3):
        norm = update(policy, opt, list(rollouts(rank)), max_norm=0.5)  # <- culprit
        print(f"[{rank}] iteration {it}: gradient norm {norm:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
