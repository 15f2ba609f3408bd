from types import SimpleNamespace

import torch


def citation_graph(n=180, n_classes=4, seed=9):
    gen = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, n_classes, (n,), generator=gen)
    same = labels[:, None] == labels[None]
    prob = torch.where(same, 0.08, 0.01)
    adj = (torch.rand(n, n, generator=gen) < prob).float()
    adj = ((adj + adj.t()) > 0).float() + torch.eye(n)
    adj = adj / adj.sum(1, keepdim=True)
    feats = torch.randn(n, 20, generator=gen) + labels[:, None] * 0.4
    nodes = torch.randperm(n, generator=gen)
    return SimpleNamespace(features=feats, adjacency=adj, labels=labels, n_classes=n_classes,
                           train_nodes=nodes[:120], valid_nodes=nodes[120:])
