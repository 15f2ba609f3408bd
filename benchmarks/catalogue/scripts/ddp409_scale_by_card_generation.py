# expect: DDP409
# ranks: 2
# culprits: [n-1]
# outcome: divergence
# plain: S
# Re-enacts: report of diverging loss scales on a mixed set of cards: the scaler starts according to the card's generation.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.amp import GradScaler


def card_of(rank, world):
    return "volta" if rank == world - 1 else "ampere"


INIT_SCALE = {"ampere": 2.0 ** 12, "volta": 2.0 ** 8}  # <- culprit


class MixedPrecisionStep:
    def __init__(self, model, opt, card):
        self.model, self.opt = model, opt
        self.scaler = GradScaler("cpu", init_scale=INIT_SCALE[card], growth_interval=1000)  # <- culprit

    def __call__(self, x, y):
        self.opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = self.model(x)
        loss = nn.functional.mse_loss(out.float(), y)
        self.scaler.scale(loss).backward()  # <- culprit
        self.scaler.step(self.opt)  # <- culprit
        self.scaler.update()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)))
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = MixedPrecisionStep(model, opt, card_of(rank, world))  # <- culprit
    g = torch.Generator().manual_seed(rank)
    for i in range(5):
        x = torch.randn(16, 8, generator=g)
        loss = step(x, x.cumsum(1))  # <- culprit
        print(f"[{rank}] {i} {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
