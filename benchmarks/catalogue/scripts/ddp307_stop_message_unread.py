# expect: DDP307
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
"""Rank 0 deals out tasks; workers answer each; -1 means that there is no more."""

import torch
import torch.distributed as dist

TASKS_EACH = 3


def master(size):
    results = []
    for worker in range(1, size):
        for task in range(TASKS_EACH):
            dist.send(torch.tensor([task + 10 * worker]), dst=worker)
            answer = torch.zeros(1, dtype=torch.long)
            dist.recv(answer, src=worker)
            results.append(answer.item())
        dist.send(torch.tensor([-1]), dst=worker)
    return results


def worker():
    while True:
        task = torch.zeros(1, dtype=torch.long)
        dist.recv(task, src=0)
        if task.item() < 0:
            # say good-bye
            dist.send(torch.tensor([0]), dst=0)  # <- culprit
            break
        dist.send(task * task, dst=0)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print(master(size))
    else:
        worker()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
