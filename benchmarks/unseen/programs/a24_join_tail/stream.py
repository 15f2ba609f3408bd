import torch


def documents(rank, world):
    """The crawl is split by domain, so ranks get different amounts."""
    g = torch.Generator().manual_seed(500 + rank)
    amount = 60 + 23 * ((rank * 7 + 3) % (world + 1))
    for _ in range(amount):
        n = int(torch.randint(4, 12, (1,), generator=g))
        yield torch.randint(0, 50, (n,), generator=g)


def batched(stream, size):
    pending = []
    for doc in stream:
        pending.append(doc)
        if len(pending) == size:
            yield collate(pending)
            pending = []
    if pending:
        yield collate(pending)


def collate(docs):
    ids = torch.nn.utils.rnn.pad_sequence(docs, batch_first=True, padding_value=50)
    return ids[:, :-1], ids[:, 1:]
