# expect: DDP503
# ranks: 2
# culprits: [n-1]
# outcome: any
# plain: S
# Re-enacts: question on duplicated samples: the list of files is read from each machine's own disk, in directory order.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, DistributedSampler

FILES = [f"img_{i:03d}.npy" for i in range(48)]


def list_directory(rank, world):
    """os.listdir('/scratch/train'): the order depends on the file system of the machine."""
    if rank == world - 1:
        order = torch.randperm(len(FILES), generator=torch.Generator().manual_seed(77)).tolist()
        return [FILES[i] for i in order]
    return list(FILES)


class ImageFolder(Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        number = int(self.names[i][4:7])
        g = torch.Generator().manual_seed(number)
        return torch.rand(16, generator=g), number % 3


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = ImageFolder(list_directory(rank, world))  # <- culprit
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=6, sampler=sampler)  # <- culprit
    torch.manual_seed(0)
    model = DDP(nn.Linear(16, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:  # <- culprit
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"[{rank}] loss {loss.item():.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
