"""Purchase prediction from the categorical fields of a shop session."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from fields.encoder import SessionModel
from fields.shards import load_shard


def main():
    torch.manual_seed(2)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    shard = load_shard(rank, world)
    model = DDP(SessionModel(shard))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    rows = len(shard.label)
    for epoch in range(2):
        for start in range(0, rows, 32):
            part = shard.rows(slice(start, start + 32))
            opt.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(part), part.label)
            loss.backward()
            opt.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
