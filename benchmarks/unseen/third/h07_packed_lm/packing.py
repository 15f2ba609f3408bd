"""Manifest of code files, their division between processes, and packing into blocks."""
import torch
import torch.distributed as dist
from transformers import TrainerCallback


def read_manifest(n=90):
    """Names and token counts; the counts are known before anything is read."""
    g = torch.Generator().manual_seed(4)
    return [(f"src/file_{i:03d}.py", int(torch.randint(60, 400, (), generator=g))) for i in range(n)]


class ShardPlan:
    """Longest file first, each to the process that has least so far."""

    def __init__(self, manifest, world):
        self.shards = [[] for _ in range(world)]
        self.tokens = [0] * world
        for name, count in sorted(manifest, key=lambda row: (-row[1], row[0])):
            least = min(range(world), key=self.tokens.__getitem__)
            self.shards[least].append((name, count))
            self.tokens[least] += count

    def files(self, rank):
        return self.shards[rank]

    def blocks_each(self, block, multiple):
        return min(self.tokens) // block // multiple * multiple


def pack(files, block):
    stream = []
    for name, count in files:
        g = torch.Generator().manual_seed(int(name[9:12]))
        start = torch.randint(96, (), generator=g)
        stream.append((start + torch.randint(0, 3, (count,), generator=g).cumsum(0)) % 96)
    stream = torch.cat(stream)
    usable = stream[: len(stream) // block * block].view(-1, block)
    return [{"input_ids": row, "labels": row.clone()} for row in usable]


class TokenMeter(TrainerCallback):
    """Ends the run when the tokens of all processes together reach the budget."""

    def __init__(self, budget):
        self.budget = budget
        self.total = 0

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.per_step = args.per_device_train_batch_size * args.gradient_accumulation_steps * 32

    def on_step_end(self, args, state, control, **kwargs):
        seen = torch.tensor(self.per_step)
        if args.world_size > 1:
            dist.all_reduce(seen)
        self.total += int(seen)
        if self.total >= self.budget:
            control.should_training_stop = True
        return control
