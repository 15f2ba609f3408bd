"""Click model with a large item table; dense and embedding gradients travel on groups of their own."""
import torch
import torch.distributed as dist
import torch.nn.functional as F

from model import ClickModel
from reducers import GradientExchange
from traffic import Traffic

STEPS = 24


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = ClickModel(items=512, dim=8)
    exchange = GradientExchange(model, world)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    traffic = Traffic.for_rank(rank, world)
    for step in range(STEPS):
        items, context, clicked = traffic.batch(step)
        opt.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(items, context), clicked)
        loss.backward()
        exchange.average(items)
        opt.step()
        if step % 8 == 0 and rank == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
