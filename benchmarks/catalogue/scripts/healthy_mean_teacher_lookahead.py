# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
import copy
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 20), nn.GroupNorm(4, 20), nn.ReLU(), nn.Dropout(0.1))
        self.out = nn.Linear(20, 2)

    def forward(self, x):
        return self.out(self.body(x))


class EmaTeacher(nn.Module):
    """Shadow weights held as float64 buffers; copied to a float32 net for the forward."""

    def __init__(self, student, decay):
        super().__init__()
        self.decay = decay
        self.net = copy.deepcopy(student).requires_grad_(False).eval()
        for name, p in student.named_parameters():
            self.register_buffer("shadow_" + name.replace(".", "_"), p.detach().double().clone())
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update(self, student):
        self.updates += 1
        d = min(self.decay, (1 + self.updates.item()) / (10 + self.updates.item()))
        for (name, p), q in zip(student.named_parameters(), self.net.parameters()):
            s = getattr(self, "shadow_" + name.replace(".", "_"))
            s.lerp_(p.double(), 1 - d)
            q.copy_(s)

    def forward(self, x):
        return self.net(x)


class Lookahead:
    def __init__(self, opt, k=3, alpha=0.5):
        self.opt, self.k, self.alpha, self.n = opt, k, alpha, 0
        self.params = [p for g in opt.param_groups for p in g["params"]]
        self.slow = [p.detach().clone() for p in self.params]

    @torch.no_grad()
    def step(self):
        self.opt.step()
        self.n += 1
        if self.n % self.k == 0:
            for p, s in zip(self.params, self.slow):
                s.add_(p - s, alpha=self.alpha)
                p.copy_(s)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(Student())
    teacher = EmaTeacher(model.module, decay=0.95)
    swa = AveragedModel(model.module)
    opt = Lookahead(torch.optim.Adam(model.parameters(), lr=0.02))
    torch.manual_seed(50 + rank)                                 # from here: own data, own dropout
    w = torch.linspace(-1, 1, 6)
    gv = torch.Generator().manual_seed(4)
    xv = torch.randn(64, 6, generator=gv)
    yv = (xv @ w > 0).long()

    for step in range(1, 19):
        x = torch.randn(16, 6)
        y = (x @ w > 0).long()
        with torch.no_grad():
            soft = teacher(x + 0.05 * torch.randn_like(x)).softmax(1)
        logits = model(x + 0.2 * torch.randn_like(x))
        loss = F.cross_entropy(logits[:8], y[:8]) + 0.5 * F.mse_loss(logits.softmax(1), soft)
        opt.opt.zero_grad()
        loss.backward()
        opt.step()
        teacher.update(model.module)
        if step > 9:
            swa.update_parameters(model.module)
        if step % 6 == 0:
            acc = torch.zeros(2)
            if rank == 0:                                        # only rank 0 evaluates: plain modules, no wrapper
                model.module.eval()
                with torch.no_grad():
                    acc[0] = (teacher(xv).argmax(1) == yv).float().mean()
                    acc[1] = (model.module(xv).argmax(1) == yv).float().mean()
                model.module.train()
                print(f"step {step} teacher {acc[0]:.2f} student {acc[1]:.2f}", flush=True)
            dist.broadcast(acc, src=0)
            if acc.min() > 0.995:
                break
    for net in (model.module, teacher, swa.module):
        v = torch.cat([t.double().flatten() for t in net.state_dict().values()])
        ref = v.clone()
        dist.broadcast(ref, 0)
        assert torch.equal(v, ref)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
