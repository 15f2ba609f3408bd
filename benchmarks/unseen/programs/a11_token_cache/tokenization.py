import os
import time

import torch

TEXT = "the quick brown fox jumps over the lazy dog while the cat sleeps near the warm stove".split()


def fingerprint(options):
    return f"{hash(frozenset(options.items())) & 0xFFFFFFFF:08x}"


def tokenize(options):
    vocab = {w: i for i, w in enumerate(sorted(set(TEXT)))}
    ids = [vocab[w.lower() if options["lower"] == "yes" else w] for w in TEXT * options["repeat"]]
    return torch.tensor(ids), len(vocab)


def load_tokens(root, options, builder):
    target = os.path.join(root, f"tokens-{fingerprint(options)}.pt")
    if builder:
        tmp = target + ".part"
        torch.save(tokenize(options), tmp)
        os.replace(tmp, target)
    waited = 0.0
    while not os.path.isfile(target):
        time.sleep(0.2)
        waited += 0.2
    return torch.load(target)
