import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class CurriculumTrainer:
    STAGES = {"captioning": dict(epochs=1, lr=2e-2), "reasoning": dict(epochs=2, lr=1e-2)}

    def __init__(self, model, data):
        self.model = DDP(model) if dist.is_initialized() else model
        self.data = data
        self.is_main = not dist.is_initialized() or dist.get_rank() == 0

    def _get_model(self):
        return self.model.module if isinstance(self.model, DDP) else self.model

    def _train_stage(self, name, epochs, lr):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        for epoch in range(epochs):
            self.model.train()
            total, count = 0.0, 0
            for batch in self.data(name, epoch):
                optimizer.zero_grad()
                loss = self._get_model().compute_loss(batch)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimizer.step()
                total, count = total + loss.item(), count + 1
            if self.is_main:
                print(f"[{name}] epoch {epoch}: {total / count:.4f}")

    @torch.no_grad()
    def _evaluate(self, name):
        self.model.eval()
        hits = [
            (self._get_model().generate(b["patches"]) == b["tokens"]).float().mean()
            for b in self.data(name, 99)
        ]
        acc = torch.stack(hits).mean()
        dist.all_reduce(acc)
        return acc.item() / dist.get_world_size()

    def run(self):
        for name, options in self.STAGES.items():
            self._train_stage(name, **options)
            acc = self._evaluate(name)
            if self.is_main:
                print(f"[{name}] accuracy {acc:.3f}")
