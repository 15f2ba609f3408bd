import json
import pathlib
import random

GENRES = ["forum", "news", "wiki", "legal"]


def write_shard(folder, rank, lines=60):
    """Stand-in for the export job: one JSON document per line."""
    rng = random.Random(40 + rank)
    path = pathlib.Path(folder) / f"part-{rank:03d}.jsonl"
    with path.open("w") as f:
        for i in range(lines):
            if GENRES[rank % len(GENRES)] == "forum" and i == 41:
                f.write("\n")
            f.write(json.dumps({"id": i, "tokens": [rng.randrange(50) for _ in range(8)]}) + "\n")
    return path


def documents(path):
    with open(path) as f:
        while line := f.readline().strip():
            yield json.loads(line)["tokens"]


def batches(path, size):
    batch = []
    for tokens in documents(path):
        batch.append(tokens)
        if len(batch) == size:
            yield batch
            batch = []
