"""Fine-tune a pretrained body with a new head; the model is built without storage, the checkpoint brings it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.body(x))


def pretrained():
    weights = Classifier(10).state_dict()
    return {name: tensor for name, tensor in weights.items() if name.startswith("body.")}


def build(classes):
    with torch.device("meta"):
        model = Classifier(classes)
    model.load_state_dict(pretrained(), strict=False, assign=True)  # the head is new
    return DistributedDataParallel(model)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = build(classes=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
    dist.destroy_process_group()


main()
