"""Synthetic utterances: every intent prefers its own range of tokens."""
import torch

INTENTS = ["order", "refund", "complaint", "hours"]


def utterances(n, seed, vocab=120, length=16):
    g = torch.Generator().manual_seed(seed)
    rows = []
    width = (vocab - 4) // len(INTENTS)
    for _ in range(n):
        label = int(torch.randint(len(INTENTS), (), generator=g))
        ids = torch.randint(4, vocab, (length,), generator=g)
        keyed = 4 + label * width + torch.randint(width, (length,), generator=g)
        ids = torch.where(torch.rand(length, generator=g) < 0.35, keyed, ids)
        rows.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": label})
    return rows
