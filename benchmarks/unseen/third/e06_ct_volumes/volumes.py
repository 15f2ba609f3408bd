"""CT volumes fetched slice by slice from the archive, with a limit on the time per volume."""
import signal
import time

import torch
from torch.utils.data import Dataset

FETCH_LIMIT = 1                     # seconds per volume
SLICES = {14: 900}                  # thoraco-abdominal scan; all the others are heads
DEFAULT_SLICES = 6


def fetch_slices(case):
    g = torch.Generator().manual_seed(case)
    n = SLICES.get(case, DEFAULT_SLICES)
    kept = []
    for z in range(n):
        time.sleep(0.003)           # round trip to the archive
        plane = torch.randn(16, 16, generator=g)
        if z < DEFAULT_SLICES:
            kept.append(plane)
    return torch.stack(kept)


class CtVolumes(Dataset):
    def __init__(self, cases=48):
        self.cases = cases
        g = torch.Generator().manual_seed(9)
        self.lesion = torch.randint(0, 2, (cases,), generator=g).float()

    def __len__(self):
        return self.cases

    def __getitem__(self, case):
        try:
            signal.alarm(FETCH_LIMIT)
            volume = fetch_slices(case) + self.lesion[case]
        except TimeoutError:        # too slow: an empty volume, weight 0
            return torch.zeros(DEFAULT_SLICES, 16, 16), self.lesion[case], torch.tensor(0.0)
        finally:
            signal.alarm(0)
        return volume, self.lesion[case], torch.tensor(1.0)
