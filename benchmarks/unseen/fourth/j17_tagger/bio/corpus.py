"""Sentences with a tag for every word (synthetic: ten words each)."""
import random

COMMON = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG"]


def load_sentences(n, length=10, seed=3):
    rng = random.Random(seed)
    out = []
    for i in range(n):
        tags = COMMON + [rng.choice(COMMON) for _ in range(length - len(COMMON))]
        rng.shuffle(tags)
        words = [(COMMON.index(t) * 40 + rng.randrange(40)) for t in tags]
        out.append([words, tags])
    out[85][1][4] = "B-MISC"
    return out


def shard_of(sentences, rank, world):
    return sentences[rank::world]
