import torch
from torch.utils.data import Dataset

PAD = 0


class Reviews(Dataset):
    """Token ids of product reviews, most of them short."""

    def __init__(self, n=48, vocab=80):
        g = torch.Generator().manual_seed(8)
        lengths = torch.randint(4, 24, (n,), generator=g)
        lengths[21] = 37
        self.items = [torch.randint(1, vocab, (int(k),), generator=g) for k in lengths]
        self.stars = torch.rand(n, generator=g)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i], self.stars[i]


def collate(batch):
    ids, stars = zip(*batch)
    return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PAD), torch.stack(stars)
