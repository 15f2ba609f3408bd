# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: "main process first" data preparation and a resume done right: all load, then wrap, sampler and random state restored.
import io
import time
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def tokenise():
    time.sleep(1.0)  # reads and cleans the raw text
    return torch.randint(0, 30, (40, 6), generator=torch.Generator().manual_seed(1))


def get_tokens():
    box = [tokenise() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def make_net():
    return nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Dropout(0.1), nn.Linear(48, 30))


def fit(tokens, state, stop):
    rank = dist.get_rank()
    net = make_net()
    if state is not None:
        net.load_state_dict(state["net"])
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = 0
    if state is not None:
        opt.load_state_dict(state["opt"])
        start = state["epoch"]
        torch.set_rng_state(state["rng"][rank])
    data = TensorDataset(tokens)
    sampler = DistributedSampler(data, seed=7)
    loader = DataLoader(data, batch_size=5, sampler=sampler)
    for epoch in range(start, stop):
        sampler.set_epoch(epoch)
        for (ids,) in loader:
            loss = nn.functional.cross_entropy(model(ids), ids[:, 0])
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    rng = [None] * dist.get_world_size()
    dist.all_gather_object(rng, torch.get_rng_state())
    return {"net": model.module.state_dict(), "opt": opt.state_dict(), "epoch": stop, "rng": rng}


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(100 + dist.get_rank())
    tokens = get_tokens()
    buf = io.BytesIO()
    torch.save(fit(tokens, None, 2), buf)
    buf.seek(0)
    fit(tokens, torch.load(buf), 4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
