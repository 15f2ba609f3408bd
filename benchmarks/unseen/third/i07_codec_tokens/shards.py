"""Prompts and codec tokens, bucketed by duration; a bucket file holds what one worker reads."""
import torch

CODES = 32
# utterances in the bucket files, as the preparation script wrote them
BUCKETS = {2: (72, 56), 3: (72, 48, 72), 4: (72, 80, 56, 72)}


class BucketReader:
    def __init__(self, rank, world, batch=8, length=10):
        self.count, self.batch, self.length = BUCKETS[world][rank], batch, length
        self.g = torch.Generator().manual_seed(60 + rank)

    def __iter__(self):
        for _ in range(self.count // self.batch):
            start = torch.randint(0, CODES, (self.batch, 1), generator=self.g)
            step = torch.randint(1, 5, (self.batch, 1), generator=self.g)
            codes = (start + step * torch.arange(self.length + 1)) % CODES
            yield codes[:, :-1], codes[:, 1:]
