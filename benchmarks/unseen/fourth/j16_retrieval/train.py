import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from comm import share_plan
from encoder import Encoder
from mining import mine
from passages import Passages


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(14)
    plan = share_plan(rank)
    data = Passages(rank, plan["per_rank"])
    model = DDP(Encoder(plan["dim"]))
    optim = torch.optim.Adam(model.parameters(), lr=plan["lr"])

    for rnd in range(plan["rounds"]):
        negatives = mine(model.module, data, rank, world)
        for start in range(0, plan["per_rank"], 16):
            part = slice(start, start + 16)
            both = model(torch.cat([data.query[part], data.text[part]]))
            q, t = both.chunk(2)
            score = torch.cat([(q * t).sum(1, True), q @ negatives.t()], 1) / 0.1
            loss = F.cross_entropy(score, torch.zeros(len(q), dtype=torch.long))
            optim.zero_grad()
            loss.backward()
            optim.step()
        if rank == 0:
            print(f"round {rnd} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
