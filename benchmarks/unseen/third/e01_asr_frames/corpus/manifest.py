"""Utterance manifest: (id, number of frames, number of target characters)."""
import random


def load_manifest(n=192, seed=7):
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        frames = rng.randint(40, 240)
        if rng.random() < 0.06:
            frames = rng.randint(420, 600)      # whole-chapter recordings
        rows.append((f"utt{i:05d}", frames, max(4, frames // 12)))
    return rows
