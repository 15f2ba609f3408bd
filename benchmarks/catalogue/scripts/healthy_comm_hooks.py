# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: communication hook recipes: a hand-written averaging hook on one model, a compressing hook on another, on all processes.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


def averaging_hook(state, bucket):
    buf = bucket.buffer().div_(state["world"])
    state["buckets"] += 1
    fut = dist.all_reduce(buf, async_op=True).get_future()
    return fut.then(lambda f: f.value()[0])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    encoder = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU()))
    decoder = DDP(nn.Linear(20, 10))
    state = {"world": world, "buckets": 0}
    encoder.register_comm_hook(state, averaging_hook)
    decoder.register_comm_hook(None, default_hooks.fp16_compress_hook)
    opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    gen = torch.Generator().manual_seed(rank)
    for step in range(5):
        x = torch.randn(8, 10, generator=gen)
        loss = (decoder(encoder(x)) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    if rank == 0:
        print(f"loss {loss.item():.4f} after {state['buckets']} buckets")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
