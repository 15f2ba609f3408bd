"""Cut token streams of our sources into fixed-length training sequences."""
import torch

VOCAB, SEQ = 53, 16
SOURCES = (("web", 3100), ("books", 3120), ("wiki", 3090), ("code", 3215))   # name, tokens


def source_for(rank, world):
    return SOURCES[len(SOURCES) - world + rank]


def packed(rank, world):
    name, tokens = source_for(rank, world)
    g = torch.Generator().manual_seed(sum(map(ord, name)))
    start = torch.randint(0, VOCAB, (1,), generator=g)
    jumps = torch.randint(1, 4, (tokens,), generator=g)
    stream = (start + jumps.cumsum(0)) % VOCAB
    count = len(stream) // SEQ
    return name, stream[: count * SEQ].view(count, SEQ)
