# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
import json
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class CorruptRecord(Exception): ...


class FlakyShare:
    """Stand-in for a network file system: the first read of some files fails."""
    def __init__(self, folder):
        self.folder, self.failed = folder, set()

    def read(self, name):
        if name.endswith("2.json") and name not in self.failed:
            self.failed.add(name)
            raise OSError(5, "Input/output error", name)
        with open(os.path.join(self.folder, name)) as f:
            return f.read()


def with_retries(fn, *args, tries=4, pause=0.05):
    for k in range(tries):
        try:
            return fn(*args)
        except OSError as e:
            if k == tries - 1:
                raise
            time.sleep(pause * 2 ** k)


def write_batches(folder, rank, count):
    g = torch.Generator().manual_seed(rank)
    for i in range(count):
        x = torch.randn(6, 3, generator=g)
        text = json.dumps({"x": x.tolist(), "y": x.sum(1).tolist()})
        if rank == 1 and i in (3, 5) or rank == 0 and i == 6:
            text = text[:40]                               # a truncated upload
        with open(os.path.join(folder, f"b{i}.json"), "w") as f:
            f.write(text)


def load_batch(share, i):
    try:
        d = json.loads(with_retries(share.read, f"b{i}.json"))
    except json.JSONDecodeError as e:
        raise CorruptRecord(f"batch {i}: {e.msg}") from e
    return torch.tensor(d["x"]), torch.tensor(d["y"]).unsqueeze(1)


def anyone(flag):
    t = torch.tensor([1 if flag else 0], dtype=torch.int32)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return bool(t)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    done, skipped = 0, []
    with tempfile.TemporaryDirectory(prefix=f"rank{rank}-") as folder:
        write_batches(folder, rank, 8)
        share = FlakyShare(folder)
        torch.manual_seed(1)
        model = DDP(nn.Linear(3, 1))
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(8):
            batch = None
            try:
                batch = load_batch(share, i)
            except CorruptRecord as e:
                print(f"[{rank}] {e}", flush=True)
            if anyone(batch is None):                      # nobody steps unless everybody can
                skipped.append(i)
                continue
            opt.zero_grad()
            (loss := nn.functional.mse_loss(model(batch[0]), batch[1])).backward()
            opt.step()
            done += 1
    assert skipped == [3, 5, 6] and done == 5, (skipped, done)
    print(f"[{rank}] {done} steps, skipped {skipped}, last loss {loss.item():.3f}", flush=True)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
