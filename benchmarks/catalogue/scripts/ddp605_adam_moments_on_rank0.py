# expect: DDP605
# also: DDP410
# ranks: 2
# culprits: any
# outcome: divergence
# plain: S
# Re-enacts: issue on resuming: weights are broadcast from the first process, Adam's moments stay with it.
import copy
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def fresh():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.SiLU(), nn.Linear(6, 1))
    return net, torch.optim.Adam(net.parameters(), lr=1e-2)


def earlier_run():
    """What a previous (single process) job has left on the first machine."""
    net, opt = fresh()
    g = torch.Generator().manual_seed(1)
    for _ in range(5):
        x = torch.randn(8, 6, generator=g)
        opt.zero_grad()
        (net(x).squeeze(1) - x.sum(1)).pow(2).mean().backward()
        opt.step()
    return {"net": net.state_dict(), "opt": copy.deepcopy(opt.state_dict())}


def load_and_broadcast(net, opt):
    if dist.get_rank() == 0:  # <- culprit
        ckpt = earlier_run()
        net.load_state_dict(ckpt["net"])
        opt.load_state_dict(ckpt["opt"])  # <- culprit
    for t in net.state_dict().values():
        dist.broadcast(t, src=0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net, opt = fresh()
    load_and_broadcast(net, opt)  # <- culprit
    model = DDP(net)
    g = torch.Generator().manual_seed(10 + rank)
    for step in range(5):
        x = torch.randn(8, 6, generator=g)
        loss = (model(x).squeeze(1) - x.sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()  # <- culprit
        print(f"[{rank}] step {step}: {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
