import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

from checkpoint import Checkpointer
from model import build

MASK, LENGTH, BATCH, STEPS = 23, 20, 8, 30


def batches(rank):
    g = torch.Generator().manual_seed(400 + rank)
    while True:
        start = torch.randint(0, 20, (BATCH, 1), generator=g)
        stride = torch.randint(1, 4, (BATCH, 1), generator=g)
        target = (start + stride * torch.arange(LENGTH)) % 20
        hidden = torch.rand(BATCH, LENGTH, generator=g) < 0.15
        hidden[:, 0] = True
        yield target.masked_fill(hidden, MASK), target, hidden


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    model = build(mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    folder = [tempfile.mkdtemp(prefix="residue_")] if rank == 0 else [None]
    dist.broadcast_object_list(folder, src=0)
    saver = Checkpointer(folder[0], every=10)

    for step, (tokens, target, hidden) in zip(range(1, STEPS + 1), batches(rank)):
        logits = model(tokens)
        loss = F.cross_entropy(logits[hidden], target[hidden])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        mean /= world
        if rank == 0 and step % 5 == 0:
            print(f"step {step} mlm loss {mean:.4f}", flush=True)
        saver.maybe_save(model, step, {"mlm": mean.item()})
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
