import torch
import torch.distributed as dist

from ragged import Archive, exchange, gather_ragged


class HashEmbedding:
    """A table whose rows are spread over the ranks."""

    def __init__(self, rows, dim):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        full = torch.arange(rows * dim, dtype=torch.float32).view(rows, dim)
        self.local = full[self.rank::self.world].clone()
        self.full = full

    def lookup(self, ids):
        owner = ids % self.world
        keys, back = exchange((ids // self.world).float().unsqueeze(1), owner)
        found = self.local[keys.long().squeeze(1)]
        return back(found)


def batch(rank, step):
    g = torch.Generator().manual_seed(step * 31 + rank)
    size = 3 + (5 * rank + 2 * step) % 9
    return torch.randint(0, 60, (size,), generator=g)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    table = HashEmbedding(60, 4)
    archive = Archive(keeper=world - 1)
    for step in range(12):
        ids = batch(rank, step)
        vectors = table.lookup(ids)
        assert torch.equal(vectors, table.full[ids])
        norms = gather_ragged(vectors.norm(dim=1))
        assert norms.numel() == sum(batch(r, step).numel() for r in range(world))
        if step % 4 != 3:
            continue
        archive.append({"step": step, "ids": ids.tolist()})
    if rank == archive.keeper:
        print(f"kept {len(archive.lines)} records, last norm {norms[-1].item():.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
