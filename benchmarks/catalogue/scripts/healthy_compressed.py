# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""Student and teacher-in-the-loop, both trained; gradients travel compressed."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.nn.parallel import DistributedDataParallel as DDP


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Pair:
    def __init__(self):
        torch.manual_seed(12)
        self.teacher = DDP(mlp(16, 64, 64, 4))
        self.student = DDP(mlp(16, 12, 4))
        state = power.PowerSGDState(process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=3,
                                    min_compression_rate=1, use_error_feedback=True, warm_start=True, random_seed=4)
        self.teacher.register_comm_hook(state, power.powerSGD_hook)
        self.student.register_comm_hook(None, default_hooks.fp16_compress_hook)
        self.t_opt = torch.optim.SGD(self.teacher.parameters(), lr=0.05)
        self.s_opt = torch.optim.Adam(self.student.parameters(), lr=5e-3)

    def step(self, x, y):
        self.t_opt.zero_grad()
        logits = self.teacher(x)
        t_loss = nn.functional.cross_entropy(logits, y)
        t_loss.backward()
        self.t_opt.step()

        self.s_opt.zero_grad()
        soft = logits.detach().div(2.0).softmax(1)
        s_loss = nn.functional.kl_div((self.student(x) / 2.0).log_softmax(1), soft, reduction="batchmean")
        s_loss.backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), 0.5)
        self.s_opt.step()
        return t_loss.item(), s_loss.item()


def crops(rank, n):
    """Random crops, other ones on each rank."""
    g = torch.Generator().manual_seed(rank * 7919 + 1)
    base = torch.linspace(-2, 2, 64)
    for _ in range(n):
        starts = torch.randint(0, 48, (20,), generator=g)
        x = torch.stack([base[s:s + 16] for s in starts]) + 0.1 * torch.randn(20, 16, generator=g)
        yield x, starts // 12


def equal(model):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    low, high = flat.clone(), flat.clone()
    works = [dist.all_reduce(low, dist.ReduceOp.MIN, async_op=True),
             dist.all_reduce(high, dist.ReduceOp.MAX, async_op=True)]
    for w in works:
        w.wait()
    return torch.equal(low, high)


def main():
    dist.init_process_group("gloo")
    pair = Pair()
    for step, (x, y) in enumerate(crops(dist.get_rank(), 10)):
        t, s = pair.step(x, y)
        if dist.get_rank() == 0 and step % 3 == 0:
            print(f"step {step}: teacher {t:.4f} student {s:.4f}", flush=True)
    assert equal(pair.teacher) and equal(pair.student)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
