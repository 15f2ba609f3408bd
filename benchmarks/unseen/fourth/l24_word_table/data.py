import torch

BASE = "alpha beta gamma delta epsilon zeta eta theta iota kappa".split()
RARE = "lambda mu nu".split()


def documents(total=96):
    docs = []
    for i in range(total):
        words = [BASE[(i + 3 * k) % len(BASE)] for k in range(8)]
        if i % 12 == 1:
            words[i % 8] = RARE[(i // 12) % len(RARE)]
        docs.append((words, float(i % 2)))
    return docs


class Vocabulary:
    def __init__(self, min_count=1):
        self.min_count = min_count
        self.index = {"<unk>": 0}

    def fit(self, docs):
        seen = {}
        for words, _ in docs:
            for w in words:
                seen[w] = seen.get(w, 0) + 1
        for w in sorted(seen):
            if seen[w] >= self.min_count:
                self.index[w] = len(self.index)
        return self

    def __len__(self):
        return len(self.index)

    def encode(self, words):
        return [self.index.get(w, 0) for w in words]


class Corpus:
    def __init__(self, rank, world):
        docs = documents()
        self.docs = docs[rank::world]
        self.vocab = Vocabulary().fit(self.docs)

    def batches(self, size):
        for at in range(0, len(self.docs) - size + 1, size):
            part = self.docs[at:at + size]
            ids = torch.tensor([self.vocab.encode(words) for words, _ in part])
            yield ids, torch.tensor([[label] for _, label in part])
