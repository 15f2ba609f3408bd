import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from heads import LayoutModel
from pages import Pages, collate


def parse_losses(losses):
    """Total loss for the backward pass and world averages of every term for the log."""
    total = sum(losses.values())
    log_vars = dict(losses)
    log_vars["loss"] = total
    for name, value in log_vars.items():
        value = value.detach().clone()
        dist.all_reduce(value.div_(dist.get_world_size()))
        log_vars[name] = value.item()
    return total, log_vars


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-pages", type=int, default=3)
    p.add_argument("--lr", type=float, default=2e-3)
    args = p.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)

    data = Pages()
    sampler = DistributedSampler(data, shuffle=False, drop_last=True)
    loader = DataLoader(data, batch_size=args.batch_pages, sampler=sampler, collate_fn=collate, drop_last=True)
    model = DDP(LayoutModel(), find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)

    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss, log_vars = parse_losses(model(batch))
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if rank == 0 and step % 5 == 0:
                terms = "  ".join(f"{k} {v:.4f}" for k, v in log_vars.items())
                print(f"epoch {epoch} step {step}  {terms}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
