"""Speech quality of call centres with very different amounts of calls."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from archive import CallArchive
from scoring import Scorer

CALLS = (12, 7, 10, 5)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(17)
    model = DDP(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scorer = Scorer(model, optimizer)
    archive = CallArchive(rank, CALLS[rank])

    for round_ in range(4):
        scorer.train_round(archive)
        report = scorer.report()
        if report is not None:
            print("round %d: error %.4f over %d calls" % (round_, *report), flush=True)
        if round_ % 2 == 1 and max(scorer.spot_check(archive)) < 1e-3:
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
