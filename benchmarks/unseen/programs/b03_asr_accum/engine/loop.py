import time
from contextlib import nullcontext

import torch
import torch.distributed as dist


class TrainLoop:
    def __init__(self, model, optimizer, accum_grad=2, grad_clip=5.0, log_interval=4):
        self.model = model
        self.optimizer = optimizer
        self.accum_grad = accum_grad
        self.grad_clip = grad_clip
        self.log_interval = log_interval
        self.history = []

    def context(self, batch_idx):
        if dist.is_initialized() and batch_idx % self.accum_grad:
            return self.model.no_sync()
        return nullcontext()

    def step(self, batch, batch_idx):
        x, y = batch
        with self.context(batch_idx):
            loss = torch.nn.functional.mse_loss(self.model(x), y) / self.accum_grad
            loss.backward()
        if (batch_idx + 1) % self.accum_grad == 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item() * self.accum_grad

    def run_epoch(self, loader, epoch):
        started = time.time()
        for batch_idx, batch in enumerate(loader):
            self.history.append(self.step(batch, batch_idx))
            if batch_idx % self.log_interval == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch} batch {batch_idx} loss {self.history[-1]:.4f} ({time.time() - started:.2f}s)")
