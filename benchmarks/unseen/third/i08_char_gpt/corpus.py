import torch

LINES = ["the quick brown fox jumps over the lazy dog. ", "she sells sea shells by the sea shore. ",
         "how much wood would a woodchuck chuck? ", "peter piper picked a peck of peppers. "]


class Corpus:
    def __init__(self, block_size, batch_size):
        text = "".join(LINES[(i * i) % len(LINES)] for i in range(200))
        chars = sorted(set(text))
        data = torch.tensor([chars.index(c) for c in text])
        cut = int(0.9 * len(data))
        self.vocab, self.parts = len(chars), {"train": data[:cut], "val": data[cut:]}
        self.block, self.batch = block_size, batch_size

    def get_batch(self, split):
        part = self.parts[split]
        ix = torch.randint(len(part) - self.block - 1, (self.batch,))
        x = torch.stack([part[i:i + self.block] for i in ix])
        return x, torch.stack([part[i + 1:i + 1 + self.block] for i in ix])
