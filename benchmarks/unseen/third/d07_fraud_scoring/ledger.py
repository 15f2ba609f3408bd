import torch

BRANCHES = ("north", "east", "south", "west")
FRAUD_RATE = {"train": {"north": 0.3, "east": 0.2, "south": 0.25, "west": 0.2},
              "audit": {"north": 0.3, "east": 0.0, "south": 0.25, "west": 0.0}}


def transactions(part, branch, count):
    g = torch.Generator().manual_seed(len(part) * 31 + BRANCHES.index(branch))
    labels = (torch.rand(count, generator=g) < FRAUD_RATE[part][branch]).float()
    features = torch.randn(count, 6, generator=g)
    features[:, 0] += 1.5 * labels
    return features, labels


def shard(part, rank, world, size):
    """`size` transactions, in equal numbers from each branch of this rank."""
    mine = BRANCHES[rank::world]
    parts = [transactions(part, branch, size // len(mine)) for branch in mine]
    return torch.cat([f for f, _ in parts]), torch.cat([l for _, l in parts])
