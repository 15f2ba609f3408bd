# expect: DDP505
# ranks: 2
# culprits: [n-1]
# outcome: crash
# plain: E
# Re-enacts: issue "DataLoader worker (pid ...) is killed by signal": the native decoder dies on one damaged file.
import ctypes
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, Subset


def decode(address, size):
    """The decoder library; reads the compressed bytes at the address."""
    return bytes((ctypes.c_ubyte * size).from_address(address))  # <- culprit


class Photos(Dataset):
    def __init__(self, n):
        self.n = n
        self.buffer = ctypes.create_string_buffer(bytes(range(64)))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        damaged = i == self.n - 5
        raw = decode(0 if damaged else ctypes.addressof(self.buffer), 64)  # <- culprit
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() / 64 + i / self.n


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = Photos(24 * world)
    # contiguous shares, so that neighbouring pictures stay on one machine
    share = Subset(data, range(rank * 24, (rank + 1) * 24))
    loader = DataLoader(share, batch_size=4, num_workers=1)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 64)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in loader:  # <- culprit
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"[{rank}] {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
