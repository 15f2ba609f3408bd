from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from packing import micro_batches


class TokenModel(nn.Module):
    def __init__(self, vocab=24, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.ff = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, vocab, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, ids):
        return self.out(torch.tanh(self.ff(self.emb(ids))))


def main(steps=15):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    model = DDP(TokenModel())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        micro = micro_batches(rank, step)
        tokens = torch.tensor([sum(len(ids) for ids, _ in micro)])
        dist.all_reduce(tokens)
        opt.zero_grad()
        loss_sum = torch.zeros(())
        for i, (ids, target) in enumerate(micro):
            last = i == len(micro) - 1
            with nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(ids), target, reduction="sum")
                (loss * world / tokens.item()).backward()
            loss_sum += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        dist.all_reduce(loss_sum)
        if rank == world - 1 and step % 5 == 0:
            print(f"step {step}: {len(micro)} micro batches here, loss {loss_sum.item() / tokens.item():.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
