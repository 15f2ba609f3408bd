# expect: DDP414
# ranks: 2
# culprits: [n-1]
# outcome: any
# plain: S
# Re-enacts: issue "loss is nan after the first step": the loss is divided by the number of labelled tokens of the local batch.
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

IGNORE = -100


def make_batch(gen, step, rank, world):
    x = torch.randint(0, 40, (4, 10), generator=gen)
    y = x.roll(-1, 1).clone()
    y[:, :3] = IGNORE
    if rank == world - 1 and step == 2:
        y.fill_(IGNORE)  # four dialogues whose answers were all cut off
    return x, y


def masked_lm_loss(logits, labels):
    keep = labels != IGNORE
    per_token = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORE, reduction="none")
    return per_token.sum() / keep.sum()  # <- culprit


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(40, 16)
        self.mix = nn.Linear(16, 16)
        self.lm_head = nn.Linear(16, 40)

    def forward(self, ids):
        return self.lm_head(torch.tanh(self.mix(self.wte(ids))))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Model())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    for step in range(5):
        x, y = make_batch(gen, step, rank, world)
        loss = masked_lm_loss(model(x), y)  # <- culprit
        opt.zero_grad()
        loss.backward()  # <- culprit
        opt.step()
        print(f"[{rank}] step {step}: {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
