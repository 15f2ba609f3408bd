# expect: DDP303
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: A
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, Subset


class Accelerator:
    """The two hundredth home-made copy of accelerate."""

    def __init__(self):
        dist.init_process_group("gloo")
        self.process_index = dist.get_rank()
        self.num_processes = dist.get_world_size()

    @property
    def is_main_process(self):
        return self.process_index == 0

    def prepare_model(self, model):
        return torch.nn.parallel.DistributedDataParallel(model)

    def shard(self, dataset):
        return Subset(dataset, range(self.process_index, len(dataset), self.num_processes))

    def gather(self, tensor):
        out = [torch.empty_like(tensor) for _ in range(self.num_processes)]
        dist.all_gather(out, tensor.contiguous())  # <- culprit
        return torch.cat(out)

    def gather_for_metrics(self, *tensors):
        return tuple(self.gather(t) for t in tensors)  # <- culprit

    def end(self):
        dist.destroy_process_group()


def make_sets(world):
    gen = torch.Generator().manual_seed(11)
    x = torch.randn(24 * world + 8 * world - 1, 5, generator=gen)
    y = (x.sum(1) > 0).long()
    cut = 24 * world
    return TensorDataset(x[:cut], y[:cut]), TensorDataset(x[cut:], y[cut:])


def train(acc, model, opt, loader):
    model.train()
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()


@torch.no_grad()
def evaluate(acc, model, loader):
    model.eval()
    preds, refs = [], []
    for x, y in loader:
        logits = model(x)
        p, r = acc.gather_for_metrics(logits.argmax(-1), y)  # <- culprit
        preds.append(p)
        refs.append(r)
    return (torch.cat(preds) == torch.cat(refs)).float().mean().item()


def main():
    acc = Accelerator()
    torch.manual_seed(int(os.environ.get("SEED", 5)))
    model = acc.prepare_model(torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train_set, val_set = make_sets(acc.num_processes)
    train_loader = DataLoader(acc.shard(train_set), batch_size=8, shuffle=True)
    val_loader = DataLoader(acc.shard(val_set), batch_size=4)
    for epoch in range(2):
        train(acc, model, opt, train_loader)
        accuracy = evaluate(acc, model, val_loader)
        if acc.is_main_process:
            print(f"epoch {epoch} accuracy {accuracy:.3f}", flush=True)
    acc.end()


if __name__ == "__main__":
    main()
