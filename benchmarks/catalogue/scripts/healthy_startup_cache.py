# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
"""Start-up as in a real project: environment, signal and exit handlers, a process pool before the group
exists, a slow cache that rank 0 builds while the others wait, and a pre-emption signal to one rank."""
import os
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MY_RUN_NAME"] = "cache-demo-r" + os.environ.get("RANK", "0")
import atexit
import contextlib
import multiprocessing
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ["RANK"])
STOP = {"asked": False}


def on_usr1(signum, frame):
    STOP["asked"] = True


def hash_line(i):
    return (i * 2654435761) % 97


def scratch_dir():
    d = tempfile.mkdtemp(prefix=f"scratch-r{RANK}-")
    atexit.register(shutil.rmtree, d, ignore_errors=True)
    return d


@contextlib.contextmanager
def rank_zero_first():
    if RANK != 0:
        dist.barrier()
    yield
    if RANK == 0:
        dist.barrier()


def build_or_load(path):
    if not os.path.exists(path):
        time.sleep(3)                                 # tokenising the corpus
        rows = torch.tensor([[hash_line(i + k) / 97 for k in range(4)] for i in range(64)])
        torch.save(rows, path + ".part")
        os.rename(path + ".part", path)
    return torch.load(path)


def main():
    signal.signal(signal.SIGUSR1, on_usr1)            # what the batch system sends before it takes the node
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert sum(pool.map(hash_line, range(10))) == sum(map(hash_line, range(10)))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    version = subprocess.run([sys.executable, "-S", "-c", "import sys; print(sys.version_info[0])"],
                             capture_output=True, text=True, check=True).stdout.strip()
    assert version == "3"
    box = [scratch_dir() if RANK == 0 else None]
    dist.broadcast_object_list(box, src=0)
    private = scratch_dir()
    with rank_zero_first():
        rows = build_or_load(os.path.join(box[0], "corpus.pt"))
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    mine = rows[RANK::dist.get_world_size()]
    ran = 0
    for step in range(20):
        opt.zero_grad()
        (model(mine) - mine.mean(1, keepdim=True)).square().mean().backward()
        opt.step()
        ran += 1
        if RANK == 0 and step == 7:
            os.kill(os.getpid(), signal.SIGUSR1)
        flag = torch.tensor(int(STOP["asked"]))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag.item():
            torch.save(model.module.state_dict(), os.path.join(private, "last.pt"))
            break
    assert ran == 8, ran
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
