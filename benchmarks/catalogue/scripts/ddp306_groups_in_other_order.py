# expect: DDP306
# ranks: 2
# culprits: any
# outcome: hang
# plain: T
# Re-enacts: issue on overlapping process groups, one half of the processes reduces the norm in the other order.
import torch
import torch.nn as nn
import torch.distributed as dist


class ParallelState:
    """A model-parallel and a data-parallel view of the same processes (degenerate on small worlds)."""

    def __init__(self):
        everyone = list(range(dist.get_world_size()))
        self.model_group = dist.new_group(everyone)
        self.data_group = dist.new_group(everyone)


def grad_norm_sq(params):
    return torch.stack([p.grad.pow(2).sum() for p in params]).sum().reshape(1)


def reduce_norm(state, sharded, replicated, first_half):
    a, b = grad_norm_sq(sharded), grad_norm_sq(replicated)
    if first_half:  # <- culprit
        dist.all_reduce(a, group=state.model_group)  # <- culprit
        dist.all_reduce(b, group=state.data_group)  # <- culprit
    else:
        dist.all_reduce(b, group=state.data_group)  # <- culprit
        dist.all_reduce(a, group=state.model_group)  # <- culprit
    return (a + b).sqrt().item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    state = ParallelState()
    torch.manual_seed(0)
    layer = nn.Linear(6, 6)
    norm = nn.LayerNorm(6)
    for step in range(3):
        out = norm(layer(torch.randn(4, 6)))
        out.pow(3).sum().backward()
        total = reduce_norm(state, list(layer.parameters()), list(norm.parameters()), rank < world // 2)  # <- culprit
        if rank == 0:
            print(f"step {step}: gradient norm {total:.3f}", flush=True)
        layer.zero_grad()
        norm.zero_grad()
    dist.destroy_process_group()


main()
