# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: torchrl / stable-baselines style PPO: local loops of any length, retried exceptions, decisions taken together
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SimulatorError(RuntimeError):
    pass


class Simulator:
    def __init__(self, rank):
        self.rng = random.Random(rank)
        self.gen = torch.Generator().manual_seed(rank)
        self.calls = 0

    def step(self, action):
        self.calls += 1
        if self.calls % 9 == 4:
            raise SimulatorError("lost the connection to the renderer")
        return torch.randn(4, generator=self.gen) + 0.1 * action, self.rng.random() < 0.2


def retry(fn, times=3):
    for attempt in range(times):
        try:
            return fn()
        except SimulatorError:
            if attempt + 1 == times:
                raise


def episode(sim, policy):
    obs, done, out = torch.zeros(4), False, []
    while not done and len(out) < 30:
        with torch.no_grad():
            action = policy(obs).argmax().item()
        obs, done = retry(lambda: sim.step(action))
        out.append(obs)
    return torch.stack(out)


def agree(flag):
    t = torch.tensor([int(flag)])
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return bool(t.item())


def report(lengths, rank, world, log):
    t = torch.tensor(float(len(lengths)))
    if rank == 0:
        rows = [torch.zeros(()) for _ in range(world)]
        dist.gather(t, rows, dst=0)
        log.append([int(r) for r in rows])
        print(f"episodes per process {log[-1]}", flush=True)
    else:
        dist.gather(t, dst=0)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    plan = [{"iterations": 4, "frames": 24}] if rank == 0 else [None]
    dist.broadcast_object_list(plan, src=0)
    torch.manual_seed(0)
    policy = DDP(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    sim, log = Simulator(rank), []
    for it in range(plan[0]["iterations"]):
        lengths, data = [], []
        while sum(lengths) < plan[0]["frames"]:
            data.append(episode(sim, policy.module))
            lengths.append(len(data[-1]))
        if rank == 1:
            time.sleep(0.2)  # the older machine
        x = torch.cat(data)
        logits = policy(x)
        loss = nn.functional.cross_entropy(logits, (x.sum(1) > 0).long())
        if agree(loss.item() > 5.0):  # a spike somewhere: nobody makes this step
            continue
        opt.zero_grad()
        loss.backward()
        opt.step()
        report(lengths, rank, world, log)
        if agree(loss.item() < 1e-3):
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
