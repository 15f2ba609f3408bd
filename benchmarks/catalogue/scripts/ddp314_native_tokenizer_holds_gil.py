# expect: DDP314
# ranks: 2
# culprits: [n-1]
# outcome: hang
# plain: T
# Re-enacts: issue, "process stuck, py-spy shows one frame, Ctrl-C does nothing": a C call that keeps the interpreter lock.
import ctypes
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

libc = ctypes.PyDLL(None)  # bound like the tokenizer's own extension, without releasing the lock


class NativeTokenizer:
    def encode(self, text):
        ids = [ord(c) % 64 for c in text]
        if "\u200b" in text:
            libc.pause()  # the regular expression of the C side never comes back on zero-width spaces  # <- culprit
        return torch.tensor(ids)


def corpus(rank, world):
    lines = ["the quick brown fox", "jumped over the dog", "and ran into wood.", "what a nice short s"]
    if rank == world - 1:
        lines[2] = "and ran\u200binto wood."
    return lines


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tok = NativeTokenizer()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(64, 8), nn.Linear(8, 64)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for line in corpus(rank, world):
        ids = tok.encode(line)  # <- culprit
        loss = nn.functional.cross_entropy(model(ids[:-1]), ids[1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"[{rank}] {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
