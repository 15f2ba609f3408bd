# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Fine-tune a tiny tied language model with LoRA: weights exist on rank 0 only, the others start on the meta device."""
import math
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, DIM = 19, 12


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.mix = nn.Linear(DIM, DIM)
        self.norm = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)
        self.tie()

    def tie(self):
        self.lm_head.weight = self.embed.weight

    def forward(self, ids):
        return self.lm_head(self.norm(self.embed(ids) + self.mix(self.embed(ids)).tanh()))


class LoRA(nn.Module):
    def __init__(self, base, r=2, alpha=4):
        super().__init__()
        self.base, self.scale = base, alpha / r
        self.a = nn.Parameter(torch.empty(r, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b) * self.scale


def load_base(rank):
    if rank == 0:
        torch.manual_seed(1)                                    # stands for torch.load of the pretrained file
        model = TinyLM()
    else:
        with torch.device("meta"):
            model = TinyLM()
        model.to_empty(device="cpu")
        model.tie()                                             # to_empty makes two tensors of the shared one
    for t in model.state_dict().values():
        dist.broadcast(t, src=0)
    return model


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = load_base(rank)
    assert model.lm_head.weight is model.embed.weight
    torch.manual_seed(9 + rank)
    model.requires_grad_(False)
    model.mix = LoRA(model.mix)                                 # different `a` per rank; the wrapper takes rank 0's
    ddp = DDP(model)
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    trainable = [p for p in model.parameters() if p.requires_grad]
    assert len(trainable) == 2
    opt = torch.optim.AdamW(trainable, lr=0.05, weight_decay=0.0)
    for _ in range(15):
        ids = torch.randint(0, VOCAB, (8, 6))
        loss = F.cross_entropy(ddp(ids).flatten(0, 1), ((ids + 3) % VOCAB).flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trainable, 1.0)
        opt.step()

    path = [os.path.join(tempfile.mkdtemp(), "adapter.pt") if rank == 0 else None]
    dist.broadcast_object_list(path, src=0)
    if rank == 0:
        torch.save({n: p.detach() for n, p in model.named_parameters() if p.requires_grad}, path[0])
    dist.barrier()
    adapter = torch.load(path[0], map_location="cpu", weights_only=True)
    assert model.load_state_dict(adapter, strict=False).unexpected_keys == []
    for n, p in model.named_parameters():
        assert n not in frozen or torch.equal(p, frozen[n])
        got = [torch.empty_like(p) for _ in range(world)]
        dist.all_gather(got, p.detach())
        assert all(torch.equal(g, got[0]) for g in got)
    assert model.mix.b.abs().sum() > 0
    dist.barrier()
    if rank == 0:
        os.remove(path[0])
        print(f"adapter of {sum(v.numel() for v in adapter.values())} numbers, loss {loss.item():.3f}")
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
