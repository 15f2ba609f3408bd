# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: pytorch forum, master-worker evaluation with send/recv from any source: everything is rank-dependent and everything matches
import time

import torch
import torch.distributed as dist

ASK, WORK = 1, 2
STOP = -1


class Coordinator:
    def __init__(self, jobs, workers):
        self.jobs, self.workers = list(range(jobs)), workers
        self.results = {}

    def serve(self):
        alive, pending = self.workers, []
        while alive:
            msg = torch.empty(3)  # who asks, job, result (job -1: nothing done yet)
            source = dist.recv(msg, tag=ASK)
            who, job, value = int(msg[0]), int(msg[1]), float(msg[2])
            assert who == source
            if job >= 0:
                self.results[job] = value
            answer = torch.tensor([self.jobs.pop() if self.jobs else STOP])
            alive -= int(answer.item() == STOP)
            pending.append((dist.isend(answer, dst=who, tag=WORK), answer))
        for work, _ in pending:  # all of them, much later
            work.wait()
        return self.results


class Evaluator:
    def __init__(self, rank):
        self.rank = rank
        self.done = 0

    def loop(self):
        job, value = -1, 0.0
        while True:
            dist.send(torch.tensor([float(self.rank), float(job), value]), dst=0, tag=ASK)
            order = torch.empty(1, dtype=torch.int64)
            dist.recv(order, src=0, tag=WORK)
            job = int(order)
            if job == STOP:
                return
            value = self.evaluate(job)
            self.done += 1

    def evaluate(self, job):
        time.sleep(0.01 * (1 + 4 * (self.rank % 2)))
        g = torch.Generator().manual_seed(job)
        return torch.randn(32, generator=g).square().mean().item()


def ring_average(value, rank, world):
    """Two neighbours never receive at the same time unless somebody sends."""
    right, left = (rank + 1) % world, (rank - 1) % world
    token, total = torch.tensor([value]), value
    for _ in range(world - 1):
        incoming = torch.empty(1)
        if rank % 2 == 0:
            dist.send(token, right)
            dist.recv(incoming, left)
        else:
            dist.recv(incoming, left)
            dist.send(token, right)
        token, total = incoming, total + incoming.item()
    return total / world


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
if rank == 0:
    results = Coordinator(jobs=11, workers=world - 1).serve()
    print(f"{len(results)} results, mean {sum(results.values()) / len(results):.3f}", flush=True)
    mine = 0
else:
    ev = Evaluator(rank)
    ev.loop()
    mine = ev.done
avg = ring_average(float(mine), rank, world)
print(f"[{rank}] did {mine}, average {avg:.2f}", flush=True)
dist.barrier()
dist.destroy_process_group()
