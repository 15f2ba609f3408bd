# expect: DDP317
# ranks: 2
# culprits: any
# outcome: any
# plain: E
# Re-enacts: issue "tokenization fails after the time-out": the main process prepares the data longer than the limit allows.
import datetime
import time
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

TIMEOUT = datetime.timedelta(seconds=1)  # <- culprit


def prepare_corpus():
    """Cleans and packs the raw text; takes a few seconds on the real files."""
    packed = []
    for _ in range(40):
        time.sleep(0.1)
        packed.append(torch.randint(0, 30, (4, 6)))
    return torch.cat(packed)


class main_process_first:
    def __enter__(self):
        if dist.get_rank() != 0:
            dist.barrier()  # <- culprit

    def __exit__(self, *exc):
        if dist.get_rank() == 0:
            dist.barrier()


def main():
    dist.init_process_group("gloo", timeout=TIMEOUT)  # <- culprit
    rank = dist.get_rank()
    corpus = None
    with main_process_first():  # <- culprit
        if rank == 0:
            corpus = prepare_corpus()
    box = [corpus]
    dist.broadcast_object_list(box, src=0)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(30, 4), nn.Flatten(), nn.Linear(24, 30)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in box[0][rank::dist.get_world_size()].split(20):
        opt.zero_grad()
        nn.functional.cross_entropy(model(batch), batch[:, 0]).backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
