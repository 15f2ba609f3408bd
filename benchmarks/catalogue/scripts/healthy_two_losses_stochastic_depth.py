# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
import time
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# Actor-critic style net: residual blocks that are dropped at random (the same ones on every rank, from a generator
# with a common seed), dropout with a seed per rank, two losses.  Half of the batch is accumulated without
# synchronisation by two backward passes over one graph, the other half synchronises the sum.


class ResNetPV(nn.Module):
    def __init__(self, depth=4, d=16, survive=0.7):
        super().__init__()
        self.stem = nn.Linear(5, d)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Dropout(0.1)) for _ in range(depth)])
        self.policy, self.value = nn.Linear(d, 4), nn.Linear(d, 1)
        self.survive = survive

    def draw(self, gen):
        return [torch.rand((), generator=gen).item() < self.survive for _ in self.blocks]

    def forward(self, x, keep):
        h = self.stem(x)
        for alive, block in zip(keep, self.blocks):
            if alive:
                h = h + block(h) / self.survive
        return self.policy(h), self.value(h).squeeze(1)


def losses(out, action, ret):
    logits, value = out
    advantage = (ret - value).detach()
    pi = (F.cross_entropy(logits, action, reduction="none") * advantage).mean()
    return pi, F.mse_loss(value, ret)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(2024)
net = ResNetPV()
before = [p.detach().clone() for p in net.parameters()]
model = DDP(net, find_unused_parameters=True)
optimizer = torch.optim.RMSprop([
    {"params": net.stem.parameters(), "lr": 1e-3},
    {"params": net.blocks.parameters(), "lr": 2e-3},
    {"params": [*net.policy.parameters(), *net.value.parameters()], "lr": 5e-3},
])
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda s: 1.0, lambda s: 0.9 ** s, lambda s: 1 / (1 + s)])
depth_gen = torch.Generator().manual_seed(99)
torch.manual_seed(10_000 + rank)

used = torch.zeros(4, dtype=torch.long)
for update in range(12):
    keep = net.draw(depth_gen)
    used += torch.tensor(keep)
    obs = torch.randn(12, 5)
    act, ret = torch.randint(0, 4, (12,)), obs.sum(1)
    optimizer.zero_grad(set_to_none=True)
    with model.no_sync():
        pi, v = losses(model(obs[:6], keep), act[:6], ret[:6])
        pi.backward(retain_graph=True)
        (0.5 * v).backward()
    pi, v = losses(model(obs[6:], keep), act[6:], ret[6:])
    (pi + 0.5 * v).backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    for alive, block in zip(keep, net.blocks):
        assert (block[0].weight.grad is not None) == alive
    optimizer.step()
    scheduler.step()

patterns = [None] * dist.get_world_size()
dist.all_gather_object(patterns, used.tolist())
assert all(p == patterns[0] for p in patterns)
for p, b in zip(net.parameters(), before):
    root = p.detach().clone()
    dist.broadcast(root, src=0)
    assert torch.equal(root, p) and not torch.equal(p, b)
if rank == 0:
    print("blocks used", used.tolist(), "lr", scheduler.get_last_lr())
dist.barrier()
time.sleep(0.3)
dist.destroy_process_group()
