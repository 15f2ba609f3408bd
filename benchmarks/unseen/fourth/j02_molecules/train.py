import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from chem.data import MoleculeStream
from chem.model import EnergyNet
from chem.step import PackedStep


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(EnergyNet())
    optim = torch.optim.AdamW(model.parameters(), lr=2e-3)
    stream = MoleculeStream(rank, per_step=12)
    step = PackedStep(model, optim, max_atoms=40)

    bins_used = 0
    for it in range(25):
        loss, n_bins = step(stream.take())
        bins_used += n_bins
        if rank == 0 and it % 8 == 0:
            print(f"it {it} loss {loss:.4f}", flush=True)
    print(f"rank {rank}: {bins_used} packed passes", flush=True)
    dist.barrier()
    if rank == 0:
        norm = sum(p.norm().item() for p in model.parameters())
        print(f"done, weight norm {norm:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
