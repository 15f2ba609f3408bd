import torch
import torch.distributed as dist
import torch.nn.functional as F


class Engine:
    def __init__(self, model, loader, optimizer, schedule, callbacks=()):
        self.model, self.loader = model, loader
        self.optimizer, self.schedule = optimizer, schedule
        self.callbacks = list(callbacks)
        self.history = []

    def begin_epoch(self, epoch):
        self.model.train()
        for source in (self.loader, self.loader.batch_sampler):
            setter = getattr(source, "set_epoch", None)
            if callable(setter):
                setter(epoch)

    def step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.model(images), labels, label_smoothing=0.1)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.begin_epoch(epoch)
            total = torch.zeros(2)
            for images, labels in self.loader:
                total += torch.stack([self.step(images, labels), torch.tensor(1.0)])
            self.schedule.step()
            dist.all_reduce(total)
            self.history.append((total[0] / total[1]).item())
            for callback in self.callbacks:
                callback(epoch, self)
