"""Scripts that are slow, uneven but legal, or unusual: nothing may be found."""
import os
import socket
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def compute(seconds):
    end = time.monotonic() + seconds
    x = torch.randn(64, 64)
    while time.monotonic() < end:
        x = (x @ x).clamp(-1, 1)


def slow_rank(rank):
    for _ in range(3):
        if rank == 1:
            compute(1.5)
        dist.all_reduce(torch.ones(4))


def sleepy_rank(rank):
    if rank == 2:
        time.sleep(4)
    dist.barrier()


def talking_rank(rank):
    if rank == 2:
        for attempt in range(25):
            time.sleep(0.2)
            print("waiting for the file", attempt, flush=True)
    dist.barrier()


def checkpoint(rank):
    if rank == 0:
        with tempfile.NamedTemporaryFile() as file:
            for _ in range(30):
                file.write(os.urandom(1 << 20))
                file.flush()
                time.sleep(0.1)
    dist.barrier()


def joined(rank):
    from torch.distributed.algorithms.join import Join

    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for _ in range(4 + rank):
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


def subgroups(rank):
    low, high = dist.new_group([0, 1]), dist.new_group([2, 3])
    mine = low if rank < 2 else high
    for _ in range(5 if rank < 2 else 40):
        dist.all_reduce(torch.ones(4), group=mine)
        if rank < 2:
            time.sleep(0.1)
    dist.barrier()


def same_ranks_twice(rank):
    a, b = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])
    for _ in range(4):
        dist.all_reduce(torch.ones(4), group=a)
        dist.broadcast(torch.ones(2), src=0, group=b)
    dist.barrier()


def send_and_receive(rank):
    x = torch.full((3,), float(rank))
    if rank == 0:
        for peer in range(1, 4):
            dist.send(x, dst=peer)
        for _ in range(3):
            dist.recv(x)
    else:
        dist.recv(x, src=0)
        time.sleep(0.2 * rank)
        dist.send(x, dst=0)


def ring(rank):
    size = dist.get_world_size()
    sent, got = torch.full((4,), float(rank)), torch.zeros(4)
    for _ in range(5):
        ops = [dist.P2POp(dist.isend, sent, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def other_lines(rank):
    x = torch.zeros(5)
    if rank == 0:
        x += 7
        dist.broadcast(x, src=0)
    else:
        dist.broadcast(x, src=0)
    assert x[0] == 7


def uneven_splits(rank):
    size = dist.get_world_size()
    counts = [(rank + peer) % 3 + 1 for peer in range(size)]
    back = [(peer + rank) % 3 + 1 for peer in range(size)]
    out = torch.zeros(sum(back))
    dist.all_to_all_single(out, torch.ones(sum(counts)), back, counts)


def lists_on_root(rank):
    out = torch.zeros(2)
    dist.scatter(out, [torch.ones(2) * r for r in range(4)] if rank == 0 else None, src=0)
    dist.gather(out, [torch.zeros(2) for _ in range(4)] if rank == 0 else None, dst=0)
    dist.reduce(out, dst=2)
    found = [None] * 4
    dist.all_gather_object(found, {"rank": rank, "data": "x" * rank * 100})
    things = [None]
    if rank == 0:
        things = [{"config": 1}]
    dist.broadcast_object_list(things, src=0)


def other_shapes_same_size(rank):
    dist.all_reduce(torch.ones(2, 6) if rank else torch.ones(3, 4))


def init_again(rank):
    port = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port += free.getsockname()[1]
    dist.broadcast(port, src=0)
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(port.item())
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(2))


def forks(rank):
    child = os.fork()
    if child == 0:
        print("child", flush=True)
        sys.exit(0)
    os.waitpid(child, 0)
    dist.barrier()


def workers(rank):
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 2))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), num_workers=2)
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()


def accumulate(rank):
    model = DDP(nn.Linear(4, 2))
    for step in range(8):
        if step % 4 != 3:
            with model.no_sync():
                model(torch.randn(3, 4)).sum().backward()
        else:
            model(torch.randn(3, 4)).sum().backward()


def token_budget(rank):
    """Other numbers of micro-batches on each rank, and one synchronised backward in each step."""
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank + 1)
    for _ in range(6):
        micro = [torch.randn(3, 4) for _ in range(2 + rank)]
        optimizer.zero_grad()
        for number, batch in enumerate(micro, 1):
            with nullcontext() if number == len(micro) else model.no_sync():
                model(batch).square().sum().backward()
        optimizer.step()


def local_sgd(rank):
    """Each rank trains on its own, and every fourth step their parameters are averaged."""
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank + 1)
    for step in range(12):
        optimizer.zero_grad()
        with model.no_sync():
            model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        if step % 4 == 3:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= dist.get_world_size()


def asynchronous(rank):
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(30)]
    compute(0.3 * rank)
    for work in works:
        work.wait()


def wait_with_timeout(rank):
    if rank == 0:
        time.sleep(2.5)
        dist.send(torch.ones(1), dst=1)
    elif rank == 1:
        work = dist.irecv(torch.zeros(1), src=0)
        work.wait(timedelta(seconds=20))


def poll_until_done(rank):
    if rank == 2:
        time.sleep(2.5)
    work = dist.all_reduce(torch.ones(1), async_op=True)
    while not work.is_completed():
        time.sleep(0.1)
    work.wait()


def isend_kept(rank):
    works = []
    for step in range(20):
        if rank == 0:
            works.append(dist.isend(torch.ones(4), dst=1))
        elif rank == 1:
            works.append(dist.irecv(torch.zeros(4), src=0))
    for work in works:
        work.wait()
    dist.barrier()


def background_thread(rank):
    group = dist.new_group([0, 1, 2, 3])
    stop = threading.Event()

    def beat():
        for _ in range(5):
            dist.barrier(group=group)
            time.sleep(0.2)

    thread = threading.Thread(target=beat)
    thread.start()
    compute(0.5 * rank)
    thread.join()
    dist.barrier()


def monitored(rank):
    if rank == 3:
        time.sleep(1)
    dist.monitored_barrier(timeout=timedelta(seconds=20))


def functional(rank):
    import torch.distributed._functional_collectives as funcol

    x = funcol.all_reduce(torch.ones(4), "sum", dist.group.WORLD)
    assert x[0] == 4


def destroyed(rank):
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
    time.sleep(0.5 * rank)


def exits_zero(rank):
    dist.barrier()
    sys.exit(0)


def closes_stdout(rank):
    print("before", flush=True)
    sys.stdout.close()
    os.close(1)
    dist.barrier()
    time.sleep(0.5)  # whoever asks the rank now finds a stream that cannot be flushed
    dist.barrier()
    sys.exit(0)


def leaves_hard(rank):
    dist.barrier()
    os._exit(0)


def local_groups(rank):
    mine = dist.new_group([0, 1] if rank < 2 else [2, 3], use_local_synchronization=True)
    dist.all_reduce(torch.ones(2), group=mine)
    dist.barrier()


def rank_zero_work(rank):
    if rank == 0:
        compute(2)
    dist.barrier()
    if rank == 0:
        print("saved", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
    print("done", flush=True)
