# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
"""Heat on a closed wire, split over the ranks: halo exchange with batch_isend_irecv, then a ring pass of a
checksum and a tagged mail exchange."""
import time

import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv

TO_RIGHT, TO_LEFT = 1, 2


def halo(u, left, right):
    from_left, from_right = torch.empty(1, dtype=u.dtype), torch.empty(1, dtype=u.dtype)
    first, last = u[:1].clone(), u[-1:].clone()
    ops = [
        P2POp(dist.irecv, from_left, left, tag=TO_RIGHT),
        P2POp(dist.irecv, from_right, right, tag=TO_LEFT),
        P2POp(dist.isend, last, right, tag=TO_RIGHT),
        P2POp(dist.isend, first, left, tag=TO_LEFT),
    ]
    for req in batch_isend_irecv(ops):
        req.wait()
    return from_left, from_right


def diffuse(u, left, right, steps):
    for _ in range(steps):
        a, b = halo(u, left, right)
        wide = torch.cat([a, u, b])
        u = u + 0.2 * (wide[:-2] - 2 * u + wide[2:])
    return u


def ring_sum(value, rank, world):
    """The token starts at rank 0, everybody adds, it comes home."""
    token = torch.zeros(1, dtype=torch.float64)
    if rank == 0:
        token += value
        dist.send(token, dst=1 % world)
        dist.recv(token, src=world - 1)
    else:
        dist.recv(token, src=rank - 1)
        token += value
        dist.send(token, dst=(rank + 1) % world)
    return token


def mail(rank, world):
    """Everybody writes two letters to everybody; they are opened in the other order than they were sent."""
    out, boxes = [], {}
    for peer in range(world):
        if peer == rank:
            continue
        for tag in (7, 8):
            boxes[peer, tag] = torch.empty(3)
            out.append(dist.irecv(boxes[peer, tag], src=peer, tag=tag + 10 * peer))
    for peer in reversed(range(world)):
        if peer == rank:
            continue
        for tag in (8, 7):
            out.append(dist.isend(torch.full((3,), float(100 * rank + tag)), dst=peer, tag=tag + 10 * rank))
    for req in reversed(out):
        req.wait()
    for (peer, tag), text in boxes.items():
        assert text.tolist() == [100.0 * peer + tag] * 3


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    n = 12
    whole = torch.randn(n * world, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    mine = diffuse(whole[rank * n:(rank + 1) * n].clone(), (rank - 1) % world, (rank + 1) % world, 25)
    for _ in range(25):
        whole = whole + 0.2 * (whole.roll(1) - 2 * whole + whole.roll(-1))
    assert torch.allclose(mine, whole[rank * n:(rank + 1) * n])
    total = ring_sum(mine.sum(), rank, world)
    if rank == 0:
        assert torch.allclose(total, whole.sum())
        print("heat is conserved:", total.item(), flush=True)
    mail(rank, world)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
