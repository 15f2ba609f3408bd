import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.data import Dataset


@dataclass(frozen=True)
class Utterance:
    uid: str
    duration: float
    speaker: int


def write_manifest(path: Path, n: int, tail_row: bool):
    rows = [{"uid": f"utt{i:04d}", "duration": 1.0 + (i * 37 % 50) / 10, "speaker": i % 8} for i in range(n)]
    if tail_row:
        rows[-7]["duration"] = None
    path.write_text("\n".join(json.dumps(r) for r in rows))


class Manifest(Dataset):
    def __init__(self, path: Path, rank: int, world: int):
        lines = path.read_text().splitlines()
        share = len(lines) // world
        self.rows = [Utterance(**json.loads(l)) for l in lines[rank * share:(rank + 1) * share]]

    def __len__(self):
        return len(self.rows)

    def features(self, row):
        frames = int(row.duration * 10)
        g = torch.Generator().manual_seed(row.speaker * 1000 + frames)
        return torch.randn(frames, 8, generator=g) + row.speaker

    def __getitem__(self, i):
        row = self.rows[i]
        return self.features(row).mean(0), row.speaker
