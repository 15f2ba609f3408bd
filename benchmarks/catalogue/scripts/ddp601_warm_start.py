# expect: DDP601
# also: DDP405
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""Second stage of a run: warm start from the weights that stage one left on the scratch disk of the node."""
import logging
import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("stage2")


class TinyLM(nn.Module):
    def __init__(self, vocab=16, dim=8):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, t):
        return self.out(torch.tanh(self.mix(self.emb(t))))


class CheckpointStore:
    """Keeps checkpoints below the scratch directory of this process."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="scratch_")

    def save(self, name, model):
        torch.save(model.state_dict(), os.path.join(self.root, name))

    def newest(self):
        files = sorted(f for f in os.listdir(self.root) if f.endswith(".pt"))
        return os.path.join(self.root, files[-1]) if files else None

    def restore(self, model):
        path = self.newest()
        if path is None:  # <- culprit
            log.info("no checkpoint, fresh weights")
            return False
        model.load_state_dict(torch.load(path))  # <- culprit
        return True

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)


def stage_one(store):
    """What an earlier job did: the main process stored the result."""
    if dist.get_rank() == 0:
        torch.manual_seed(999)
        store.save("stage1-000100.pt", TinyLM())


def stage_two(store, tokens, steps=6):
    torch.manual_seed(0)
    model = DDP(TinyLM())
    store.restore(model.module)  # <- culprit
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        batch = tokens[step * 4:(step + 1) * 4]
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    return model, loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gen = torch.Generator().manual_seed(14)
    tokens = torch.randint(0, 16, (24 * world, 7), generator=gen).chunk(world)[rank]
    store = CheckpointStore()
    try:
        stage_one(store)
        dist.barrier()
        model, loss = stage_two(store, tokens)
        norm = sum(p.detach().norm() for p in model.parameters()).item()
        print(f"[{rank}] loss {loss:.4f} norm {norm:.6f}", flush=True)
    finally:
        store.close()
        time.sleep(0.3)  # let the last log lines out
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
