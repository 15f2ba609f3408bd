# expect: DDP103
# ranks: 2
# culprits: range(n)
# outcome: hang
# plain: T
# Re-enacts: multi-node tutorial copy in which the global rank is computed from the node's number only.
import argparse
import os
import torch
from torch import nn, optim
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def get_args():
    p = argparse.ArgumentParser(description="tiny text classifier")
    p.add_argument("--gpus-per-node", type=int, default=int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    p.add_argument("--node-rank", type=int, default=int(os.environ.get("GROUP_RANK", 0)))
    p.add_argument("--epochs", type=int, default=2)
    return p.parse_args()


class BagOfWords(nn.Module):
    def __init__(self, vocab=50, dim=12, classes=4):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim)
        self.out = nn.Linear(dim, classes)

    def forward(self, ids):
        return self.out(self.emb(ids))


def main():
    args = get_args()
    rank = args.node_rank * args.gpus_per_node  # <- culprit
    world = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world)  # <- culprit

    torch.manual_seed(1)
    model = DDP(BagOfWords())
    opt = optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for epoch in range(args.epochs):
        for _ in range(3):
            ids = torch.randint(0, 50, (8, 7), generator=g)
            y = torch.randint(0, 4, (8,), generator=g)
            loss = nn.functional.cross_entropy(model(ids), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, float(loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
