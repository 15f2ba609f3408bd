import torch


def documents(rank, step, dim=16, vocab=24):
    gen = torch.Generator().manual_seed(100 * step + rank)
    for _ in range(20):
        n = int(torch.randint(3, 30, (1,), generator=gen))
        ids = torch.randint(0, vocab, (n,), generator=gen)
        yield ids, (ids + 1) % vocab


def micro_batches(rank, step, budget=96, longest=48):
    """Fills micro batches until the token budget of the step is used."""
    pack, used, total = [], 0, 0
    out = []
    for ids, target in documents(rank, step):
        if total + len(ids) > budget:
            break
        if used + len(ids) > longest:
            out.append(pack)
            pack, used = [], 0
        pack.append((ids, target))
        used += len(ids)
        total += len(ids)
    out.append(pack)
    return [tuple(map(torch.cat, zip(*p))) for p in out if p]
