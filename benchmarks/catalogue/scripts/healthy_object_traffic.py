# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
"""Distributed word count with every kind of object and tensor exchange; all numbers are checked."""
import collections
import time

import torch
import torch.distributed as dist

TEXT = ("the quick brown fox jumps over the lazy dog while the other dog sleeps under the old oak tree and "
        "dreams of the fox that jumps over it again and again until the sun is down").split()


def hand_out(rank, world):
    """Scatter of uneven pieces from rank 0."""
    pieces = None
    if rank == 0:
        cuts = [0] + [len(TEXT) * (k + 1) * (k + 2) // (world * (world + 1)) for k in range(world)]
        pieces = [TEXT[a:b] for a, b in zip(cuts, cuts[1:])]
    got = [None]
    dist.scatter_object_list(got, pieces, src=0)
    return got[0]


def vocabulary(counts, world):
    """Dictionaries of other sizes on every rank -> the same sorted vocabulary everywhere."""
    all_counts = [None] * world
    dist.all_gather_object(all_counts, counts)
    return sorted(set().union(*all_counts))


def totals_by_rotating_root(vec, rank, world):
    """Letter range k of the vocabulary is summed up at rank k."""
    kept = None
    for root, part in enumerate(vec.tensor_split(world)):
        part = part.clone()
        dist.reduce(part, dst=root)
        if rank == root:
            kept = part
    return kept


def share_by_turns(kept, sizes, rank):
    """Every rank is the source of one broadcast."""
    parts = []
    for src, size in enumerate(sizes):
        if rank == src:
            dist.broadcast(kept, src=src)
            parts.append(kept)
        else:
            buf = torch.empty(size, dtype=torch.int64)
            dist.broadcast(buf, src=src)
            parts.append(buf)
    return torch.cat(parts)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    words = hand_out(rank, world)
    counts = collections.Counter(words)
    vocab = vocabulary(counts, world)
    vec = torch.tensor([counts[w] for w in vocab])
    sizes = [len(p) for p in vec.tensor_split(world)]
    total = share_by_turns(totals_by_rotating_root(vec, rank, world), sizes, rank)
    truth = collections.Counter(TEXT)
    assert total.tolist() == [truth[w] for w in vocab]

    # the reports go to rank 0, which answers each rank with its share in percent
    if rank == 0:
        reports = [None] * world
        dist.gather_object({"rank": rank, "words": len(words)}, reports, dst=0)
        whole = sum(r["words"] for r in reports)
        assert whole == len(TEXT) and [r["rank"] for r in reports] == list(range(world))
        answer = [torch.tensor([100.0 * r["words"] / whole]) for r in reports]
    else:
        dist.gather_object({"rank": rank, "words": len(words), "host": "n/a" * rank}, dst=0)
        answer = None
    percent = torch.zeros(1)
    dist.scatter(percent, answer, src=0)

    back = [torch.zeros(1) for _ in range(world)] if rank == world - 1 else None
    dist.gather(percent, back, dst=world - 1)
    if back:
        assert abs(sum(b.item() for b in back) - 100) < 1e-3
        print("shares:", [round(b.item()) for b in back], "vocabulary:", len(vocab), flush=True)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


main()
