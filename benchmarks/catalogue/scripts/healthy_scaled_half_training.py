# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: mixed precision recipe with GradScaler: unscale, clip, step, on a scale that grows alike everywhere.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel as DDP


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 32)
        self.b = nn.Linear(32, 8)

    def forward(self, x):
        return self.b(torch.nn.functional.gelu(self.a(x)))


def train(model, opt, scaler, gen, steps):
    for step in range(steps):
        x = torch.randn(16, 8, generator=gen)
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = model(x)
        loss = nn.functional.mse_loss(pred.float(), x.roll(1, 1))
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f} scale {scaler.get_scale():g}")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Mlp())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = GradScaler("cpu", init_scale=2.0 ** 10, growth_interval=3)
    train(model, opt, scaler, torch.Generator().manual_seed(dist.get_rank()), steps=7)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
