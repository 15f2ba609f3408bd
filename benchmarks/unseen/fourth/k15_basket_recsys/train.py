import argparse
import time

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

N_USERS, N_ITEMS = 120, 80


def interactions(n, seed):
    g = torch.Generator().manual_seed(seed)
    users = torch.randint(0, N_USERS, (n,), generator=g)
    items = torch.randint(0, N_ITEMS, (n,), generator=g)
    bought = ((users % 4) == (items % 4)).float()
    return TensorDataset(users, items, bought)


class Factorisation(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.users = nn.Embedding(N_USERS, dim)
        self.items = nn.Embedding(N_ITEMS, dim)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, users, items):
        return (self.users(users) * self.items(items)).sum(-1) + self.bias


class Meter:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def add(self, value, n):
        self.total += float(value) * n
        self.count += n


def report(accelerator, epoch, meter, started):
    totals = accelerator.reduce(torch.tensor([meter.total, float(meter.count)], dtype=torch.float64))
    if accelerator.is_main_process:
        mean = totals[0] / totals[1]
        print(f"epoch {epoch}: loss {mean:.4f} over {int(totals[1])} rows in {time.time() - started:.1f}s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1285)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
    set_seed(6)
    loader = DataLoader(interactions(args.rows, 0), batch_size=args.batch_size, shuffle=True)
    model = Factorisation()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(args.epochs):
        started = time.time()
        meter = Meter()
        with Join([model]):
            for step, (users, items, bought) in enumerate(loader):
                loss = F.binary_cross_entropy_with_logits(model(users, items), bought)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                meter.add(loss.detach(), len(users))
                if accelerator.is_main_process and step % 10 == 0:
                    print(f"  step {step} local loss {loss.item():.4f}")
        report(accelerator, epoch, meter, started)

    if accelerator.is_local_main_process:
        scores = accelerator.unwrap_model(model)(torch.zeros(N_ITEMS, dtype=torch.long), torch.arange(N_ITEMS))
        print("top items of user 0:", scores.topk(5).indices.tolist())
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
