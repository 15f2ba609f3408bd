import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from callbacks import LossTrace, MaxSteps, TokenBudget
from sources import stream


class TinyLM(nn.Module):
    def __init__(self, vocab=64, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Conv1d(dim, dim, 3)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.embed(F.pad(ids, (2, 0))).transpose(1, 2)
        return self.head(torch.relu(self.mix(h)).transpose(1, 2))


class Pretrainer:
    def __init__(self, rank, callbacks):
        torch.manual_seed(1)
        self.rank = rank
        self.model = DDP(TinyLM())
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.callbacks = callbacks
        self.state = {"step": 0, "tokens": 0, "loss": float("nan")}

    def step(self, ids):
        self.opt.zero_grad(set_to_none=True)
        logits = self.model(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1))
        loss.backward()
        self.opt.step()
        self.state.update(step=self.state["step"] + 1, tokens=self.state["tokens"] + ids.numel(), loss=loss.item())

    def fit(self, batches):
        for source, ids in batches:
            self.step(ids)
            for cb in self.callbacks:
                cb.on_step(self.state)
            if any(cb.should_stop(self.state) for cb in self.callbacks):
                break
        print(f"rank {self.rank} ({source}): {self.state}", flush=True)


def average_weights(model):
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trace = LossTrace()
    trainer = Pretrainer(rank, [trace, TokenBudget(1600), MaxSteps(40)])
    trainer.fit(stream(rank))
    average_weights(trainer.model.module)
    if not rank:
        torch.save(trainer.model.module.state_dict(), "/dev/null")
    print(trace.values, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
