"""Fraud scoring: train on all branches, audit every second epoch."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ledger import shard
from metrics import MeanLoss, MetricBook, Recall


def chunks(data, size):
    features, labels = data
    for i in range(0, len(labels), size):
        yield features[i:i + size], labels[i:i + size]


@torch.no_grad()
def audit(model, data, book):
    model.eval()
    with book:
        for features, labels in chunks(data, 24):
            scores = model(features).squeeze(-1)
            book.update(loss=F.binary_cross_entropy_with_logits(scores, labels),
                        scores=scores, labels=labels)
        result = book.values()
    model.train()
    return result


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    training = shard("train", rank, world, 96)
    held_out = shard("audit", rank, world, 48)
    book = MetricBook(Recall(), MeanLoss())

    for epoch in range(6):
        for features, labels in chunks(training, 16):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(features).squeeze(-1), labels).backward()
            optimizer.step()
        if epoch % 2 == 1:
            result = audit(model.module, held_out, book)
            if rank == 0:
                print(f"epoch {epoch}: " + " ".join(f"{k} {v:.3f}" for k, v in result.items()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
