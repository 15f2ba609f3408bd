import collections
import json
import pathlib
import tempfile

import torch.distributed as dist

SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="vocab-"))


def read_corpus(rank, lines=80):
    words = "sea salt wind north quay rope harbour tide gull mast keel oar".split()
    return [[words[(i * 7 + rank + j * j) % len(words)] for j in range(7)] for i in range(lines)]


def count_words(corpus):
    return collections.Counter(w for line in corpus for w in line)


def save(vocab, name):
    (SCRATCH / f"{name}.json").write_text(json.dumps(vocab))


def load_vocab(corpus, name="vocab"):
    cached = SCRATCH / f"{name}.json"
    if cached.exists():
        return json.loads(cached.read_text())
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, dict(count_words(corpus)))
    merged = sum(map(collections.Counter, parts), collections.Counter())
    vocab = {w: i for i, (w, _) in enumerate(sorted(merged.items(), key=lambda kv: (-kv[1], kv[0])))}
    save(vocab, name)
    return vocab
