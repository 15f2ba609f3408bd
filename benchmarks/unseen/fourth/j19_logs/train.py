import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from ingest import ingest
from model import SequenceScorer
from synthetic import write_lines


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(2)
    model = DDP(SequenceScorer())
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)

    for day in range(4):
        lines = write_lines(rank, day)
        events = ingest(lines)
        n = 16
        for start in range(0, 160, n):
            x = events[start:start + n]
            loss = model(x).mean()
            optim.zero_grad()
            loss.backward()
            optim.step()
        if rank == 0:
            print(f"day {day} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
