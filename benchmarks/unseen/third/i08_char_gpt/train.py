import math
import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from corpus import Corpus
from model import CharGPT

block_size, batch_size = 24, 6
max_iters, eval_interval, eval_iters, warmup = 20, 5, 4, 3
gradient_accumulation_steps = 12      # for the whole job
learning_rate, patience = 4e-3, 2


def get_lr(it):
    if it < warmup:
        return learning_rate * (it + 1) / (warmup + 1)
    ratio = (it - warmup) / (max_iters - warmup)
    return learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * ratio)))


@torch.no_grad()
def estimate_loss(net, corpus):
    net.eval()
    out = {s: torch.stack([net(*corpus.get_batch(s))[1] for _ in range(eval_iters)]).mean().item()
           for s in ("train", "val")}
    net.train()
    return out


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    master_process, seed_offset = rank == 0, rank
    assert gradient_accumulation_steps % world == 0
    micro_steps = gradient_accumulation_steps // world
    torch.manual_seed(1337 + seed_offset)
    corpus = Corpus(block_size, batch_size)
    model = DDP(CharGPT(corpus.vocab, block_size))
    raw_model = model.module
    opt = torch.optim.AdamW(raw_model.parameters(), lr=learning_rate)
    out_dir = tempfile.mkdtemp(prefix="chargpt_") if master_process else None
    best, stale = float("inf"), 0

    x, y = corpus.get_batch("train")
    for it in range(max_iters + 1):
        lr = get_lr(it)
        for group in opt.param_groups:
            group["lr"] = lr
        if it % eval_interval == 0:
            verdict = torch.zeros(1)
            if master_process:
                losses = estimate_loss(raw_model, corpus)
                print(f"iter {it} lr {lr:.2e} train {losses['train']:.4f} val {losses['val']:.4f}", flush=True)
                stale = 0 if losses["val"] < best else stale + 1
                if losses["val"] < best:
                    best = losses["val"]
                    torch.save({"model": raw_model.state_dict(), "iter": it}, os.path.join(out_dir, "ckpt.pt"))
                verdict.fill_(float(stale >= patience))
            dist.broadcast(verdict, src=0)
            if verdict.item():
                break
        for micro_step in range(micro_steps):
            model.require_backward_grad_sync = micro_step == micro_steps - 1
            _, loss = model(x, y)
            x, y = corpus.get_batch("train")
            (loss / micro_steps).backward()
        torch.nn.utils.clip_grad_norm_(raw_model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
