import torch
from torch.utils.data import Dataset


class TokenCorpus(Dataset):
    """Synthetic documents, grouped into batches of equal length."""

    def __init__(self, num_batches, batch_size, vocab, generator):
        self.batches = []
        for i in range(num_batches):
            length = 12 + (7 * i) % 9
            if i == num_batches - 4:
                length = 70
            tokens = torch.randint(1, vocab, (batch_size, length), generator=generator)
            labels = torch.randint(0, 4, (batch_size,), generator=generator)
            self.batches.append((tokens, labels))

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, i):
        return self.batches[i]
