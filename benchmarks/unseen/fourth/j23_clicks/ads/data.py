import torch
from torch.utils.data import Dataset


class ClickLog(Dataset):
    def __init__(self, rows, seed=88):
        gen = torch.Generator().manual_seed(seed)
        self.fields = torch.randint(0, 100, (rows, 5), generator=gen)
        self.dense = torch.rand(rows, 4, generator=gen)
        logit = (self.fields[:, 0] % 7 - 3).float() + self.dense.sum(1) - 2
        self.click = (torch.rand(rows, generator=gen) < logit.sigmoid()).float()

    def __len__(self):
        return len(self.click)

    def __getitem__(self, i):
        return self.fields[i], self.dense[i], self.click[i]
