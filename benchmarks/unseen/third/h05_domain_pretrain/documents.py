"""Synthetic documents of very different lengths."""
import torch
from torch.utils.data import Dataset


class Documents(Dataset):
    def __init__(self, n, seed, vocab=128):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            length = int(torch.randint(8, 49, (), generator=g))
            start = int(torch.randint(3, vocab, (), generator=g))
            steps = torch.randint(1, 4, (length,), generator=g).cumsum(0)
            self.rows.append(3 + (start + steps) % (vocab - 3))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index]}


class Collator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, features):
        ids = [f["input_ids"] for f in features]
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=self.pad_id)
        lengths = torch.tensor([len(i) for i in ids])
        mask = torch.arange(padded.size(1))[None] < lengths[:, None]
        labels = padded.masked_fill(~mask, -100)
        return {"input_ids": padded, "attention_mask": mask.long(), "labels": labels}
