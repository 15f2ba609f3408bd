# expect: DDP403
# ranks: 2
# culprits: [n-1]
# outcome: crash
# plain: E
# Re-enacts: issue "DDP expects same model across all ranks": the number of classes is counted in each machine's own folder.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def scan_folder(rank, world):
    """Imitates os.scandir('/data/train') of this machine."""
    folders = ["cat", "cow", "dog", "horse"]
    if rank == world - 1:
        folders.append(".ipynb_checkpoints")  # somebody browsed the pictures here
    return folders


def find_classes(rank, world):
    classes = sorted(scan_folder(rank, world))  # <- culprit
    return classes, {c: i for i, c in enumerate(classes)}


class TinyVGG(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten())
        self.classifier = nn.Linear(24, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    classes, index = find_classes(rank, world)  # <- culprit
    torch.manual_seed(0)
    model = TinyVGG(len(classes))  # <- culprit
    model = DDP(model)  # <- culprit
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(rank)
    for _ in range(3):
        x = torch.randn(4, 3, 9, 9, generator=g)
        y = torch.randint(0, 4, (4,), generator=g)
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
    print(f"[{rank}] trained on {len(classes)} classes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
