# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
"""Pre-emption drill: train, save, tear the process group down, bring it up again, resume, and end with the
same weights as a run without the interruption."""
import os
import shutil
import socket
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fresh():
    m = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Dropout(0.2), nn.Linear(12, 1))
    return m, torch.optim.AdamW(m.parameters(), lr=0.01)


def train(ddp, opt, first, last, data_rng):
    for _ in range(first, last):
        x = torch.randn(8, 4, generator=data_rng)
        opt.zero_grad()
        (ddp(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        opt.step()


def save(folder, ddp, opt, step, data_rng):
    shard = {"data": data_rng.get_state(), "torch": torch.get_rng_state()}      # everybody's own state
    torch.save(shard, os.path.join(folder, f"rng.{RANK}-of-{WORLD}.pt"))
    if RANK == 0:
        tmp = os.path.join(folder, "model.pt.tmp")
        torch.save({"model": ddp.module.state_dict(), "opt": opt.state_dict(), "step": step}, tmp)
        os.replace(tmp, os.path.join(folder, "model.pt"))
    dist.barrier()


def resume(folder):
    """Only rank 0 reads the big file; DDP's constructor hands the weights on, the rest goes by broadcast."""
    (model, opt), rest = fresh(), [None, None]
    if RANK == 0:
        ckpt = torch.load(os.path.join(folder, "model.pt"), weights_only=True)
        model.load_state_dict(ckpt["model"])
        rest = [ckpt["opt"], ckpt["step"]]
    ddp = DDP(model)
    dist.broadcast_object_list(rest, src=0)
    opt.load_state_dict(rest[0])
    shard = torch.load(os.path.join(folder, f"rng.{RANK}-of-{WORLD}.pt"), weights_only=True)
    torch.set_rng_state(shard["torch"])
    rng = torch.Generator()
    rng.set_state(shard["data"])
    return ddp, opt, rest[1], rng


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    box = [tempfile.mkdtemp(prefix="drill-"), free_port()] if RANK == 0 else [None, None]
    dist.broadcast_object_list(box)
    folder, port = box

    torch.manual_seed(RANK)                     # DDP starts from rank 0's weights
    model, opt = fresh()
    ddp, rng = DDP(model), torch.Generator().manual_seed(900 + RANK)
    train(ddp, opt, 0, 4, rng)
    save(folder, ddp, opt, 4, rng)
    train(ddp, opt, 4, 9, rng)                  # what an uninterrupted run gives
    wanted = [p.detach().clone() for p in ddp.parameters()]
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()

    store = dist.TCPStore("127.0.0.1", port, WORLD, is_master=RANK == 0)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD)
    ddp, opt, step, rng = resume(folder)
    assert step == 4
    train(ddp, opt, step, 9, rng)
    for a, b in zip(ddp.parameters(), wanted):
        assert torch.allclose(a, b, atol=1e-5)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()
    if RANK == 0:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
