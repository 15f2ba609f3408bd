# expect: DDP413
# also: DDP602
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""After training the weights of the last layer are looked up in the state dict, to tie them to a probe."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Classifier(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.hidden = nn.Linear(features, 12)
        self.fc = nn.Linear(12, classes)

    def forward(self, x):
        return self.fc(self.hidden(x).relu())


def fit(model, steps=6):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(steps):
        x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def make_probe(model):
    state = model.state_dict()  # <- culprit
    probe = nn.Linear(12, 3)
    probe.load_state_dict({"weight": state["fc.weight"], "bias": state["fc.bias"]})  # <- culprit
    return probe


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = fit(DDP(Classifier(5, 3)))
    probe = make_probe(model)  # <- culprit
    print(probe(torch.zeros(1, 12)).shape)
    dist.destroy_process_group()
