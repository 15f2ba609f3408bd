"""Hard negatives: the lead compares all passages and sends each rank the hardest."""
import torch
import torch.distributed as dist

HARD = 8


def _select(gathered):
    out = []
    everything = torch.cat([g[1] for g in gathered])
    for i, (query, text) in enumerate(gathered):
        score = query @ everything.t()
        own = slice(i * len(text), (i + 1) * len(text))
        score[:, own] = -2.0
        if len(gathered) == 1:
            score[:, own] = query @ text.t()
        best = score.max(0).values.topk(HARD).indices
        out.append(everything[best].contiguous())
    return out


@torch.no_grad()
def mine(net, data, rank, world):
    pair = torch.stack([net(data.query), net(data.text)])
    if rank == 0:
        gathered = [torch.empty_like(pair) for _ in range(world)]
        dist.gather(pair, gathered, dst=0)
        choice = _select(gathered)
        mine_ = torch.empty_like(choice[0])
        dist.scatter(mine_, choice, src=0)
    else:
        dist.gather(pair, dst=0)
        mine_ = torch.empty(HARD, pair.shape[-1])
        dist.scatter(mine_, src=0)
    return mine_
