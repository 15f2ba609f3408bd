from itertools import chain

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import stages
from policy import ReplyPolicy


def make_prompts(n=256, length=8, vocab=20):
    g = torch.Generator().manual_seed(77)
    start = torch.randint(0, vocab, (n, 1), generator=g)
    return (start + 3 * torch.arange(length)) % vocab


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = DDP(ReplyPolicy())
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    prompts = make_prompts()[rank::world]
    g = torch.Generator().manual_seed(50 + rank)

    schedule = chain(
        stages.sft(model, opt, prompts, steps=15, batch=16, g=g),
        stages.grpo(model, opt, prompts, steps=20, groups=4, size=6, reply_len=6, g=g),
    )
    for stage, step, value in schedule:
        if rank == 0 and step % 5 == 0:
            print(f"{stage} {step:3d} {value:.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        n = sum(p.numel() for p in model.parameters())
        print(f"done, {n} parameters", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
