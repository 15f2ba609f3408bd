import torch
from torch.utils.data import Dataset

VOCAB = 200
PAD = 0


class Reviews(Dataset):
    def __init__(self, n, seed, max_len=24):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            length = int(torch.randint(6, max_len, (1,), generator=g))
            ids = torch.randint(2, VOCAB, (length,), generator=g)
            label = int((ids < VOCAB // 2).float().mean() > 0.5)
            self.rows.append((ids, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True, padding_value=PAD)
    return {"input_ids": ids, "labels": torch.tensor([r[1] for r in rows])}
