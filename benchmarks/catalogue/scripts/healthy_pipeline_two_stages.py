# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Two pipeline stages (even ranks: embed and trunk, odd ranks: head), replicas of the pipeline are data parallel."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn

MICRO, ROWS, WIDTH = 4, 3, 8


def stages():
    torch.manual_seed(40)
    first = nn.Sequential(nn.Linear(5, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU()).double()
    second = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1)).double()
    return first, second


def micro_batches(step, replica):
    g = torch.Generator().manual_seed(31 * step + replica)
    x = torch.randn(MICRO * ROWS, 5, generator=g, dtype=torch.double)
    return x.chunk(MICRO), x.square().mean(1, keepdim=True).chunk(MICRO)


def run_first(model, xs, peer):
    outs, sends = [], []
    for i, x in enumerate(xs):
        y = model(x)
        outs.append(y)
        sends.append(dist.isend(y.detach().contiguous(), peer, tag=i))
    for i, y in enumerate(outs):
        grad = torch.empty_like(y)
        dist.recv(grad, peer, tag=100 + i)
        y.backward(grad)
    for s in sends:
        s.wait()
    return torch.zeros((), dtype=torch.double)


def run_second(model, ys, peer):
    total, sends = torch.zeros((), dtype=torch.double), []
    for i, y in enumerate(ys):
        h = torch.empty(ROWS, WIDTH, dtype=torch.double)
        dist.recv(h, peer, tag=i)
        h.requires_grad_()
        loss = nn.functional.mse_loss(model(h), y) / MICRO
        loss.backward()
        total += loss.detach()
        sends.append((dist.isend(h.grad, peer, tag=100 + i), h))
    for s, _ in sends:
        s.wait()
    return total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    replica, stage = divmod(rank, 2)
    replicas = world // 2
    groups = [dist.new_group(list(range(s, world, 2))) for s in (0, 1)]
    model = stages()[stage]
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    curve = []
    for step in range(6):
        xs, ys = micro_batches(step, replica)
        opt.zero_grad()
        loss = run_first(model, xs, rank + 1) if stage == 0 else run_second(model, ys, rank - 1)
        if replicas > 1:
            for p in model.parameters():
                dist.all_reduce(p.grad, group=groups[stage])
                p.grad /= replicas
        opt.step()
        dist.all_reduce(loss)                                    # zero from the first stages
        curve.append(loss.item() / replicas)

    whole = nn.Sequential(*stages())
    ref = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
    for step in range(6):
        data = [micro_batches(step, r) for r in range(replicas)]
        x = torch.cat([c for xs, _ in data for c in xs])
        y = torch.cat([c for _, ys in data for c in ys])
        ref.zero_grad()
        loss = nn.functional.mse_loss(whole(x), y)
        loss.backward()
        ref.step()
        assert abs(loss.item() - curve[step]) < 1e-9
    for a, b in zip(model.parameters(), whole[stage].parameters()):
        assert torch.allclose(a, b, atol=1e-9)
    if rank == 0:
        print(" ".join(f"{c:.4f}" for c in curve))
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
