"""Supervised fine-tuning of a toy language model, sharded with FSDP2."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

from model import TinyLM
from packing import BlockSampler, PackedDialogues

EPOCHS, BATCH, MAX_STEPS = 2, 8, 24


def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1234)
    data = PackedDialogues()
    sampler = BlockSampler(len(data), replicas=mesh.size(), seed=5)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, drop_last=True)
    model = shard(TinyLM(), mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)

    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for ids in loader:
            if step == MAX_STEPS:
                break
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            opt.step()
            opt.zero_grad()
            step += 1
            if step % 8 == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                if dist.get_rank() == 0:
                    print(f"step {step} loss {mean / mesh.size():.4f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
