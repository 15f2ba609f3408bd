# expect: DDP705
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# Re-enacts: issue "OSError: [Errno 24] Too many open files" after some hundred samples on a node with a low limit.
import os
import resource
import tempfile
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, DistributedSampler

# the limit that this cluster sets for batch jobs
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))


class Shards(Dataset):
    def __init__(self, directory, count):
        self.paths = [os.path.join(directory, f"{i:04d}.bin") for i in range(count)]
        self.handles = []

    def write(self):
        for i, p in enumerate(self.paths):
            with open(p, "wb") as f:
                f.write(bytes((i + k) % 256 for k in range(16)))
        return self

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        f = open(self.paths[i], "rb")  # <- culprit
        self.handles.append(f)  # <- culprit
        return torch.frombuffer(bytearray(f.read(16)), dtype=torch.uint8).float() / 255


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = Shards(tempfile.mkdtemp(prefix=f"shards{rank}_"), 320 * world).write()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(nn.Linear(16, 16))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):  # <- culprit
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"[{rank}] {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
