import torch
import torch.distributed as dist


def exchange(rows, owner):
    """Sends every row to the rank that owns it; returns the rows and the way back."""
    world = dist.get_world_size()
    order = torch.argsort(owner, stable=True)
    send = torch.bincount(owner, minlength=world)
    recv = torch.empty_like(send)
    dist.all_to_all_single(recv, send)
    got = rows.new_empty((int(recv.sum()), rows.size(1)))
    dist.all_to_all_single(got, rows[order].contiguous(), recv.tolist(), send.tolist())

    def back(results):
        home = results.new_empty((rows.size(0), results.size(1)))
        dist.all_to_all_single(home, results.contiguous(), send.tolist(), recv.tolist())
        out = torch.empty_like(home)
        out[order] = home
        return out

    return got, back


def gather_ragged(values):
    """Collects vectors of different lengths on every rank."""
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([values.numel()]))
    longest = max(int(s) for s in sizes)
    padded = torch.zeros(longest)
    padded[: values.numel()] = values
    slots = [torch.empty(longest) for _ in sizes]
    dist.all_gather(slots, padded)
    return torch.cat([slot[: int(n)] for slot, n in zip(slots, sizes)])


class Archive:
    def __init__(self, keeper):
        self.keeper = keeper
        self.lines = []

    def append(self, record):
        here = dist.get_rank() == self.keeper
        box = [None] * dist.get_world_size() if here else None
        dist.gather_object(record, box, dst=self.keeper)
        if not here:
            return
        self.lines.append(box)
