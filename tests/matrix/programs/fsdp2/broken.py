# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: 1
# outcome: crash or hang
# expect: DDP605
# sides: 0 | 1
# remedy: get_model_state_dict()
"""As the FSDP2 example: fully_shard on each layer, and a full state dict that rank 0 alone collects."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    for step in range(5):
        loss = model(torch.randn(4, 8, 32)).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(mean := loss.detach().clone(), dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
        if rank == 0:
            print(f"step {step}: loss {mean.item():.6f}")
    if rank == 0:
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))  # <- culprit
        torch.save(state, "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
