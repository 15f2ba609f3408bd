# expect: DDP202
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

DIM, HEADS, VOCAB = 16, 2, 40


class Rotary(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        inv = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
        self.register_buffer("inv_freq", inv, persistent=False)  # <- culprit

    def forward(self, x):
        t = torch.arange(x.shape[-2], dtype=torch.float32)
        ang = torch.outer(t, self.inv_freq)  # <- culprit
        cos, sin = ang.cos(), ang.sin()
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.rope = Rotary(DIM // HEADS)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(self.rope(q), self.rope(k), v, is_causal=True)
        return x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))


class TinyLlama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        return self.head(self.blocks(self.tok(ids)))


def pretrained_weights():
    torch.manual_seed(0)
    return TinyLlama().state_dict()


def load_fast():
    weights = pretrained_weights()
    with torch.device("meta"):  # <- culprit
        model = TinyLlama()
    model.load_state_dict(weights, assign=True)  # <- culprit
    return model.train()


dist.init_process_group("gloo")
model = DDP(load_fast())  # <- culprit
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(100 + dist.get_rank())
for step in range(4):
    ids = torch.randint(0, VOCAB, (2, 9))
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())  # <- culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
if dist.get_rank() == 0:
    print("final loss", loss.item())
dist.destroy_process_group()
