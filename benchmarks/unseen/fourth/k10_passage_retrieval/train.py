import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from mining import HardNegatives

LANGUAGES = ("en", "de", "fr", "pt")
FIRST_STAGE_CEILING = {"en": 1.0, "de": 0.78, "fr": 0.97, "pt": 0.95}
WIDTH = 24


def language_shard(lang, pairs=320):
    """Query and passage vectors with the (per-language calibrated) score of the first-stage ranker."""
    g = torch.Generator().manual_seed(LANGUAGES.index(lang))
    queries = torch.randn(pairs, WIDTH, generator=g)
    relevant = torch.rand(pairs, generator=g) < 0.3
    noise = torch.randn(pairs, WIDTH, generator=g)
    passages = torch.where(relevant[:, None], queries + 0.5 * noise, noise)
    first_stage = torch.rand(pairs, generator=g) * FIRST_STAGE_CEILING[lang]
    return TensorDataset(queries, passages, first_stage, relevant)


class DualEncoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, dim))
        self.passage = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, dim))

    def forward(self, queries, passages):
        q = F.normalize(self.query(queries), dim=-1)
        p = F.normalize(self.passage(passages), dim=-1)
        return 10.0 * q @ p.T


def train_epoch(accelerator, model, optimizer, loader, negatives):
    total = 0.0
    for queries, passages, first_stage, relevant in loader:
        bank = negatives.add(passages, first_stage, relevant)
        logits = model(queries, torch.cat([passages, bank]))
        own = logits.diagonal()
        ranking = (logits.logsumexp(1) - own)[relevant].sum() / relevant.sum().clamp(min=1)
        loss = ranking + F.softplus(own[~relevant] - 5.0).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(11)
    lang = LANGUAGES[accelerator.process_index]
    loader = DataLoader(language_shard(lang), batch_size=40, shuffle=True)
    model = DualEncoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    negatives = HardNegatives(accelerator, WIDTH)
    for epoch in range(4):
        loss = train_epoch(accelerator, model, optimizer, loader, negatives)
        mean = accelerator.reduce(torch.tensor(loss), reduction="mean")
        accelerator.print(f"epoch {epoch}: loss {mean:.3f}, bank {len(negatives.bank)}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
