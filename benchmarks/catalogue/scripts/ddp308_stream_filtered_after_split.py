# expect: DDP308
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: R
# Re-enacts: huggingface/datasets #6719 (split_dataset_by_node, then filter), litData #233
import json
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def write_shards(folder, n):
    for s in range(n):
        with open(os.path.join(folder, f"part-{s:03d}.jsonl"), "w") as f:
            for i in range(24):
                length = 2 if s == n - 1 and i % 2 else 6 + i % 3  # the last crawl has many short pages
                f.write(json.dumps({"ids": [(s * 31 + i * 7 + j) % 50 for j in range(length)]}) + "\n")


class JsonLines(IterableDataset):
    def __init__(self, folder, min_len=4, max_len=6):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder))
        self.min_len, self.max_len = min_len, max_len

    def _mine(self):
        return self.files[dist.get_rank()::dist.get_world_size()]

    def __iter__(self):
        for name in self._mine():
            with open(name) as f:
                for line in f:
                    ids = json.loads(line)["ids"]
                    if len(ids) < self.min_len:
                        continue  # <- culprit
                    yield torch.tensor(ids[: self.max_len])


class LM(nn.Module):
    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids[:, :-1]))
        return nn.functional.cross_entropy(self.out(h).flatten(0, 1), ids[:, 1:].flatten())


def train_epoch(model, loader, opt):
    n = 0
    for ids in loader:  # <- culprit
        opt.zero_grad(set_to_none=True)
        model(ids).backward()  # <- culprit
        opt.step()
        n += 1
    return n


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp() if rank == 0 else None]
    if rank == 0:
        write_shards(box[0], world)
    dist.broadcast_object_list(box, src=0)
    torch.manual_seed(0)
    model = DDP(LM())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(JsonLines(box[0]), batch_size=4)
    n = train_epoch(model, loader, opt)
    print(f"[{rank}] epoch done after {n} steps", flush=True)
    dist.destroy_process_group()  # <- culprit
