# expect: DDP302
# ranks: 2
# culprits: [n-1]
# outcome: hang
# plain: T
# Re-enacts: pipeline question, the last stage publishes the loss with another call than the one the other stages make.
import torch
import torch.nn as nn
import torch.distributed as dist


class Stage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return torch.tanh(self.fc(x))


class PipelineEngine:
    def __init__(self, width=8):
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        torch.manual_seed(self.rank)
        self.stage = Stage(width)
        self.width = width

    @property
    def is_last(self):
        return self.rank == self.world - 1

    def forward_micro(self, x):
        if self.rank > 0:
            x = torch.empty(4, self.width)
            dist.recv(x, src=self.rank - 1)
        y = self.stage(x).detach()
        if not self.is_last:
            dist.send(y, dst=self.rank + 1)
        return y

    def report_loss(self, y):
        loss = torch.zeros(1)
        if self.is_last:  # <- culprit
            loss[0] = y.pow(2).mean()
            dist.broadcast(loss, src=self.rank)  # <- culprit
        else:
            dist.all_reduce(loss)  # <- culprit
        return loss.item()


def main():
    dist.init_process_group("gloo")
    engine = PipelineEngine()
    for it in range(3):
        x = torch.randn(4, engine.width)
        y = engine.forward_micro(x)
        value = engine.report_loss(y)  # <- culprit
        if engine.rank == 0:
            print(f"iteration {it}: {value:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
