import torch

VOCAB = 40
IGNORE = -100


class Dialogs(torch.utils.data.Dataset):
    """Prompt and answer tokens; only answers are trained on."""

    def __init__(self, count=72, max_len=24):
        self.max_len = max_len
        g = torch.Generator().manual_seed(9)
        self.rows = []
        for i in range(count):
            prompt = int(torch.randint(4, 14, (1,), generator=g))
            if i == 38:
                prompt = 31  # a pasted article
            tokens = torch.randint(1, VOCAB, (prompt + 8,), generator=g)
            self.rows.append((tokens, prompt))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        tokens, prompt = self.rows[i]
        labels = tokens.clone()
        labels[:prompt] = IGNORE
        return tokens[: self.max_len], labels[: self.max_len]


def collate(rows):
    width = max(len(t) for t, _ in rows)
    tokens = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), IGNORE)
    for i, (t, l) in enumerate(rows):
        tokens[i, : len(t)] = t
        labels[i, : len(l)] = l
    return tokens, labels
