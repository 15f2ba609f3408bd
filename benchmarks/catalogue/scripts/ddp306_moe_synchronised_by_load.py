# expect: DDP306
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
# Re-enacts: DeepSpeed / Megatron MoE issues: expert gradients reduced in an order that depends on the local routing
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class MoE(nn.Module):
    def __init__(self, dim, n_experts):
        super().__init__()
        self.gate = nn.Linear(dim, n_experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(n_experts))
        self.load = torch.zeros(n_experts)

    def forward(self, x):
        w = self.gate(x).softmax(-1)
        top = w.argmax(-1)
        self.load = torch.bincount(top, minlength=len(self.experts)).float()
        return sum(w[:, i:i + 1] * e(x) for i, e in enumerate(self.experts))


class ExpertParallelSync:
    """One communicator per expert so that they can overlap; the busiest expert is sent first."""

    def __init__(self, moe):
        self.moe = moe
        self.groups = [dist.new_group() for _ in moe.experts]

    def schedule(self):
        return self.moe.load.argsort(descending=True).tolist()  # <- culprit

    def __call__(self):
        world = dist.get_world_size()
        for p in self.moe.gate.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        for e in self.schedule():  # <- culprit
            for p in self.moe.experts[e].parameters():
                dist.all_reduce(p.grad, group=self.groups[e])  # <- culprit
                p.grad /= world


def tokens(rank, world, step):
    g = torch.Generator().manual_seed(50 * step + rank)
    x = torch.randn(32, 4, generator=g) * 0.1
    code_file = step >= 2 and rank == world - 1
    x[:, 0] += -1.0 if code_file else 1.0
    return x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    moe = MoE(4, 2)
    with torch.no_grad():
        moe.gate.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]]))
    sync = ExpertParallelSync(moe)
    opt = torch.optim.SGD(moe.parameters(), lr=0.01)
    for step in range(5):
        x = tokens(rank, world, step)
        loss = F.mse_loss(moe(x), x.roll(1, dims=1))
        opt.zero_grad()
        loss.backward()
        sync()
        opt.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f} load {moe.load.tolist()}", flush=True)
    dist.destroy_process_group()
