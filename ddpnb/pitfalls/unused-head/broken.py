"""Train a classifier with an auxiliary head, whose weight in the loss is an option."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

AUX_WEIGHT = 0.0


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)
        self.aux_head = nn.Linear(32, 2)

    def forward(self, x):
        features = self.body(x)
        return self.head(features), self.aux_head(features)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        x = torch.randn(16, 10)
        logits, aux = model(x)
        loss = nn.functional.cross_entropy(logits, x[:, :4].argmax(1))
        if AUX_WEIGHT > 0:
            loss = loss + AUX_WEIGHT * nn.functional.cross_entropy(aux, x[:, :2].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
