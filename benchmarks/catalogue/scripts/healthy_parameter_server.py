# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

# Asynchronous parameter server: rank 0 holds the weights and serves whoever comes; the workers have shards of
# different length and leave when they are through (header 0 = push a gradient, 1 = goodbye).
PUSH, BYE = 0.0, 1.0


def new_model():
    torch.manual_seed(77)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))


def loss_of(model, seed, rows=32):
    x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed))
    return nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))


def serve(workers):
    model = new_model()
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    weights = parameters_to_vector(model.parameters()).detach()
    for w in range(1, workers + 1):
        dist.send(weights, dst=w)
    message = torch.empty(weights.numel() + 1)
    served, left = [0] * (workers + 1), workers
    while left:
        source = dist.recv(message)                       # from anybody
        if message[0] == BYE:
            left -= 1
            continue
        vector_to_parameters_grad(message[1:], model)
        opt.step()
        served[source] += 1
        dist.send(parameters_to_vector(model.parameters()).detach(), dst=source)
    return model, served


def vector_to_parameters_grad(vec, model):
    at = 0
    for p in model.parameters():
        p.grad = vec[at:at + p.numel()].view_as(p).clone()
        at += p.numel()


def work(rank):
    model = new_model()
    weights = torch.empty_like(parameters_to_vector(model.parameters()).detach())
    dist.recv(weights, src=0)
    for step in range(10 + 5 * rank):
        vector_to_parameters(weights.clone(), model.parameters())
        model.zero_grad()
        loss_of(model, seed=1000 * rank + step).backward()
        grads = parameters_to_vector([p.grad for p in model.parameters()])
        dist.send(torch.cat([torch.tensor([PUSH]), grads]), dst=0)
        dist.recv(weights, src=0)
    dist.send(torch.cat([torch.tensor([BYE]), torch.zeros_like(weights)]), dst=0)
    return model


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        model, served = serve(world - 1)
        assert served[1:] == [10 + 5 * r for r in range(1, world)], served
        with torch.no_grad():
            before, after = loss_of(new_model(), 5, 256).item(), loss_of(model, 5, 256).item()
        print(f"served {served[1:]} loss {before:.3f} -> {after:.3f}")
        assert after < before
    else:
        model = work(rank)
    for p in model.parameters():                          # everybody leaves with the final weights
        dist.broadcast(p.data, src=0)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
