# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""The checkpoint is read on the first rank alone, before the model is wrapped: wrapping hands the weights out."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def net():
    return nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 2))


def checkpoint():
    """What an earlier run left, still with the prefix of the wrapper."""
    state = {f"module.{name}": tensor for name, tensor in net().state_dict().items()}
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def load(model, file):
    state = torch.load(file)
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    model.load_state_dict(state)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = net()
    if rank == 0:
        load(model, checkpoint())
    model = DDP(model)
    optimizer = torch.optim.Adam(model.parameters())
    g = torch.Generator().manual_seed(rank)
    for _ in range(8):
        x = torch.randn(8, 6, generator=g)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > x[:, 1]).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
