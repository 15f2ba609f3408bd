"""A collective that some rank never makes. Lines with a mark are what the finding must name."""
import sys

import torch
import torch.distributed as dist


def barrier_on_zero(rank):
    x = torch.ones(4)
    dist.all_reduce(x)
    if rank == 0:
        dist.barrier()  # waiting: barrier_on_zero


def early_return(rank):
    if rank == 1:
        return
    dist.all_reduce(torch.ones(8))  # waiting: early_return


def skip_bad_batch(rank):
    for step in range(20):
        loss = torch.tensor(float("nan") if rank == 1 and step == 7 else 1.0)
        if not torch.isfinite(loss):
            break
        dist.all_reduce(loss)  # waiting: skip_bad_batch
    dist.barrier()  # culprit: skip_bad_batch


def continue_over(rank):
    for step in range(20):
        loss = torch.tensor(float(step))
        if not (rank == 1 and step == 7):
            dist.all_reduce(loss)  # waiting: continue_over
        dist.barrier()  # culprit: continue_over


def swallowed(rank):
    try:
        if rank == 2:
            raise ValueError("bad record")
        dist.all_reduce(torch.ones(16))  # waiting: swallowed
    except ValueError:
        pass
    dist.barrier()  # culprit: swallowed


def object_on_zero(rank):
    dist.barrier()
    if rank == 0:
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, {"rank": rank})  # waiting: object_on_zero


def asynchronous(rank):
    works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3 if rank != 3 else 2)]
    for work in works:
        work.wait()  # waiting: asynchronous


def monitored(rank):
    dist.barrier()
    if rank != 2:
        dist.monitored_barrier()  # waiting: monitored


def in_thread(rank):
    import threading

    def talk():
        dist.all_reduce(torch.ones(2))  # waiting: in_thread

    if rank != 0:
        thread = threading.Thread(target=talk)
        thread.start()
        thread.join()


def broadcast_skipped_by_root(rank):
    if rank != 0:
        dist.broadcast(torch.zeros(3), src=0)  # waiting: broadcast_skipped_by_root


def one_callback_more(rank):
    total = torch.ones(3)
    callbacks = [torch.sum, dist.barrier] if rank == 1 else [torch.sum]
    for step in range(3):
        for callback in callbacks:  # culprit: one_callback_more
            callback(*[total] * (callback is torch.sum))
        dist.all_reduce(total)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
    print("done", flush=True)
