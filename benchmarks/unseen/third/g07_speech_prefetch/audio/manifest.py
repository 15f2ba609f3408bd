import json

import torch


def read_manifest(n=72):
    """One json line per utterance, as the recorder of the call centre writes them."""
    lines = []
    for i in range(n):
        entry = {"id": i, "word": i % 6, "start": 0.0, "end": 0.4 + 0.1 * (i % 5)}
        if i == 46:
            entry["end"] = 0.0  # caller hung up
        lines.append(json.dumps(entry))
    return [json.loads(line) for line in lines]


def waveform(entry, rate=1000):
    g = torch.Generator().manual_seed(entry["id"])
    n = int(rate * (entry["end"] - entry["start"]))
    t = torch.arange(n) / rate
    return torch.sin(t * 6.28 * (40 + 30 * entry["word"])) + 0.1 * torch.randn(n, generator=g)


def features(entry, bands=20, window=40):
    frames = waveform(entry).unfold(0, window, window // 2)
    return torch.fft.rfft(frames).abs()[:, :bands].log1p().T
