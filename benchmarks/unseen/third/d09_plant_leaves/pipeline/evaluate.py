import time

import torch
import torch.distributed as dist


@torch.no_grad()
def accuracy(net, images, labels, batch=16):
    net.eval()
    right = 0
    for i in range(0, len(labels), batch):
        right += (net(images[i:i + batch]).argmax(-1) == labels[i:i + batch]).sum().item()
        time.sleep(0.02)  # the real set is on a slow disk
    net.train()
    return right / len(labels)


class HeldOut:
    """The held-out leaves stay on the first rank; the others only learn the verdict."""

    def __init__(self, model, images=None, labels=None, patience=2):
        self.model = model
        self.images, self.labels = images, labels
        self.patience = patience
        self.best, self.stale = -1.0, 0

    @property
    def keeper(self):
        return self.images is not None

    def verdict(self):
        if not self.keeper:
            box = [None]
            dist.broadcast_object_list(box, src=0)
            return box[0]
        score = accuracy(self.model.module, self.images, self.labels)
        improved = score > self.best
        self.best = max(self.best, score)
        self.stale = 0 if improved else self.stale + 1
        answer = {"score": score, "improved": improved, "stop": self.stale >= self.patience}
        dist.broadcast_object_list([answer], src=0)
        return answer
