# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: 1
# outcome: hang
# expect: DDP301
# sides: 0 | 1
"""As nanoGPT's train.py: gradient accumulation, an evaluation with a collective, on the master process only."""

import os
from contextlib import nullcontext

import torch
from torch import nn
from torch.distributed import ReduceOp, all_reduce, destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

backend = "gloo"
eval_interval, eval_iters, max_iters = 4, 2, 8
block_size, vocab_size, n_embd, batch_size = 16, 50, 32, 4
gradient_accumulation_steps = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).split(n_embd, 2)
        x = x + self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.h, self.lm_head = nn.Sequential(Block(), Block()), nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx, targets):
        logits = self.lm_head(self.h(self.wte(idx) + self.wpe(torch.arange(idx.size(1)))))
        return logits, F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))


ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    ddp_rank, ddp_world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    master_process, seed_offset = ddp_rank == 0, ddp_rank
    gradient_accumulation_steps //= ddp_world_size
else:
    master_process, seed_offset, ddp_world_size = True, 0, 1
torch.manual_seed(1337 + seed_offset)
text = torch.randint(0, vocab_size, (2000,))


def get_batch():
    ix = torch.randint(len(text) - block_size - 1, (batch_size,))
    return torch.stack([text[i : i + block_size] for i in ix]), torch.stack([text[i + 1 : i + 1 + block_size] for i in ix])


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.zeros(eval_iters)
    for k in range(eval_iters):
        losses[k] = raw_model(*get_batch())[1]
    model.train()
    mean = losses.mean()
    if ddp:
        all_reduce(mean, ReduceOp.SUM)  # <- culprit
    return mean.item() / ddp_world_size


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if ddp:
    model = DDP(model)
raw_model = model.module if ddp else model
for iter_num in range(max_iters):
    if iter_num % eval_interval == 0 and master_process:
        val_loss = estimate_loss()
        print(f"step {iter_num}: val loss {val_loss:.6f}")
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with nullcontext():
            logits, loss = model(*get_batch())
            loss = loss / gradient_accumulation_steps
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if master_process:
        print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.6f}")
if ddp:
    destroy_process_group()
