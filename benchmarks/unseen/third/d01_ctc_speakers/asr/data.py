import torch

N_MELS = 12
N_PHONES = 6


class SpeakerPool:
    """Synthetic filter-bank frames of a handful of speakers."""

    def __init__(self, n_speakers, frames, noisy=()):
        self.noisy = set(noisy)
        g = torch.Generator().manual_seed(7)
        self.proto = torch.randn(N_PHONES, N_MELS, generator=g) * 2.0
        self.offsets = torch.randn(n_speakers, N_MELS, generator=g) * 0.2
        self.frames = frames

    def utterances(self, speaker, count, seed):
        g = torch.Generator().manual_seed(seed * 1009 + speaker)
        for _ in range(count):
            phones = torch.randint(0, N_PHONES, (self.frames,), generator=g)
            feats = self.proto[phones] + self.offsets[speaker]
            feats = feats + 0.4 * torch.randn(feats.shape, generator=g)
            if speaker in self.noisy:
                # telephone recordings, transcribed by hand and badly aligned
                phones = phones.roll(3)
            yield feats, phones


def batches(pool, speakers, count, seed, size=4):
    feats, phones = [], []
    for speaker in speakers:
        for f, p in pool.utterances(speaker, count, seed):
            feats.append(f)
            phones.append(p)
    for i in range(0, len(feats), size):
        yield torch.stack(feats[i:i + size]), torch.stack(phones[i:i + size])
