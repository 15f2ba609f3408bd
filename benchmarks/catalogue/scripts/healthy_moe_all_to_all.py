# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Mixture of experts: one expert per rank, tokens travel with all_to_all of uneven splits; gate, stem and head are
replicated under DDP, the experts are not."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

DIM = 6


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send, recv):
        ctx.send, ctx.recv = send, recv
        out = x.new_empty(sum(recv), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), recv, send)
        return out

    @staticmethod
    def backward(ctx, g):
        out = g.new_empty(sum(ctx.send), g.shape[1])
        dist.all_to_all_single(out, g.contiguous(), ctx.send, ctx.recv)
        return out, None, None


class MoE(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.stem, self.head = nn.Linear(4, DIM), nn.Linear(DIM, 1)
        self.gate = nn.Linear(DIM, world, bias=False)
        self.expert = nn.Sequential(nn.Linear(DIM, 12), nn.ReLU(), nn.Linear(12, DIM))
        self.world = world

    def forward(self, x):
        h = self.stem(x)
        weight, choice = self.gate(h).softmax(1).max(1)
        order = choice.argsort(stable=True)
        send = torch.bincount(choice, minlength=self.world)
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        s, r = send.tolist(), recv.tolist()
        y = self.expert(Exchange.apply(h[order], s, r))
        y = Exchange.apply(y, r, s)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        self.last = (h.detach(), choice, y[back].detach())
        return self.head(h + weight[:, None] * y[back]).squeeze(1)


@torch.no_grad()
def check_routing(model, world):
    h, choice, y = model.last
    flat = nn.utils.parameters_to_vector(model.expert.parameters())
    experts = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(experts, flat)
    dense = nn.Sequential(nn.Linear(DIM, 12), nn.ReLU(), nn.Linear(12, DIM))
    for e, vec in enumerate(experts):
        nn.utils.vector_to_parameters(vec, dense.parameters())
        picked = choice == e
        assert torch.allclose(dense(h[picked]), y[picked], atol=1e-5)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = MoE(world)
    torch.manual_seed(500 + rank)
    for layer in (model.expert[0], model.expert[2]):
        layer.reset_parameters()                                      # experts start differently
    DDP._set_params_and_buffers_to_ignore_for_model(model, [n for n, _ in model.named_parameters() if n.startswith("expert")])
    ddp = DDP(model)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    first = last = None
    for step in range(25):
        x = torch.randn(16, 4)
        loss = (ddp(x) - x.abs().sum(1)).pow(2).mean()
        if step == 4:
            check_routing(model, world)
        opt.zero_grad()
        loss.backward()
        for p in model.expert.parameters():
            p.grad /= world                                           # the expert has summed over the tokens of all ranks
        opt.step()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        first, last = first or mean.item(), mean.item()
    assert last < first
    if rank == 0:
        print(f"loss {first:.2f} -> {last:.2f}")
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
