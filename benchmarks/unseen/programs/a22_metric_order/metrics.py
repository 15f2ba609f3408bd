import torch
import torch.distributed as dist


class TaskWeights:
    """Weights the losses of the tasks by the inverse of their averages over all ranks."""

    def __init__(self, tasks):
        self.tasks = tasks
        self.sums = {}

    def update(self, task, value):
        self.sums[task] = self.sums.get(task, 0.0) + float(value)

    def _text(self):
        t = torch.tensor([self.sums["text"]])
        dist.all_reduce(t)
        return t

    def _image(self):
        t = torch.tensor([self.sums["image"]])
        dist.all_reduce(t)
        return t

    def _audio(self):
        t = torch.tensor([self.sums["audio"]])
        dist.all_reduce(t)
        return t

    def compute(self):
        handlers = {"text": self._text, "image": self._image, "audio": self._audio}
        totals = {task: handlers[task]() for task in self.sums}
        inverse = {k: 1.0 / v.clamp_min(1e-6).item() for k, v in totals.items()}
        scale = len(inverse) / sum(inverse.values())
        self.sums = {}
        return {k: v * scale for k, v in inverse.items()}
