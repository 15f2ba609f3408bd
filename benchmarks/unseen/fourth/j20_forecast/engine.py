import contextlib


class Engine:
    def __init__(self, model, optim, cfg):
        self.model, self.optim, self.cfg = model, optim, cfg

    def _backward(self, x, y, sync):
        with contextlib.nullcontext() if sync else self.model.no_sync():
            err = (self.model(x) - y).pow(2)
            (err.mean() / self.cfg.accumulate).backward()
        return err.detach().mean(1).sum().item()

    def run_epoch(self, loader):
        total = len(loader)
        stats = {"sse": 0.0, "windows": 0}
        for i, (x, y) in enumerate(loader, start=1):
            boundary = i % self.cfg.accumulate == 0 or i == total
            stats["sse"] += self._backward(x, y, boundary)
            stats["windows"] += len(x)
            if boundary:
                self.optim.step()
                self.optim.zero_grad()
        return stats
