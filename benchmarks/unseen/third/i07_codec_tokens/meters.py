import torch
import torch.distributed as dist


class FrameLoss:
    """Loss per frame over all workers, for the progress line."""

    def __init__(self, smooth=0.9):
        self.smooth, self.value, self.updates = smooth, None, 0

    def update(self, loss, frames):
        both = torch.tensor([loss * frames, float(frames)], dtype=torch.float64)
        rows = [torch.zeros_like(both) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, both)
        total = torch.stack(rows).sum(0)
        now = (total[0] / total[1]).item()
        self.value = now if self.value is None else self.smooth * self.value + (1 - self.smooth) * now
        self.updates += 1
        return self.value
