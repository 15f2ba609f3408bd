import torch
import torch.distributed as dist
import torch.nn.functional as F


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses = [F.mse_loss(model.module(x), y).item() for x, y in loader]
    model.train()
    return sum(losses) / len(losses)


class Fitter:
    def __init__(self, model, train_loader, val_loader, lr=0.05):
        self.model, self.train_loader, self.val_loader = model, train_loader, val_loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=0.3, patience=1, threshold=5e-3
        )
        self.best = float("inf")

    def run(self, epochs):
        for epoch in range(epochs):
            for x, y in self.train_loader:
                self.optimizer.zero_grad()
                F.mse_loss(self.model(x), y).backward()
                self.optimizer.step()
            val_loss = validate(self.model, self.val_loader)
            self.scheduler.step(val_loss)
            self.best = min(self.best, val_loss)
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: val {val_loss:.5f} best {self.best:.5f}")
