"""Click-through model; the campaigns come in rotations that are the same everywhere."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from engine import CampaignEngine
from priors import Calibrator, ClickLog, PriorStore

N_CAMPAIGNS = 6
MEMORY = 64 * 1024
# log rows of the data centres, as exported
EXPORTED = {"fra": 900, "iad": 880, "sin": 910, "gru": 590}
PLACEMENT = {2: ("fra", "gru"), 3: ("fra", "gru", "sin"), 4: ("iad", "fra", "gru", "sin")}


def make_log(rank, world):
    site = PLACEMENT[world][rank]
    return ClickLog(shard=rank, n_campaigns=N_CAMPAIGNS, rows=EXPORTED[site])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    log = make_log(rank, world)

    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = CampaignEngine(model, optimizer, log, Calibrator(PriorStore(log, MEMORY)))

    warmup = [[0, 1, 2], [2, 1, 0]]
    full = [list(range(N_CAMPAIGNS)), [5, 4, 3, 2, 1, 0], [3, 0, 4, 1, 5, 2]]
    for name, rotations in (("warm-up", warmup), ("full", full)):
        loss = engine.run(rotations)
        if rank == 0:
            print(f"{name}: mean loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
