import torch
from torch import nn
from torch.nn import functional as F


class SketchVAE(nn.Module):
    def __init__(self, size=12, hidden=48, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(size * size, hidden), nn.ReLU())
        self.stats = nn.Linear(hidden, 2 * latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, size * size))

    def encode(self, x):
        mu, logvar = self.stats(self.encoder(x)).chunk(2, -1)
        return mu, logvar.clamp(-6, 6)

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(z), mu, logvar

    def training_loss(self, x, beta):
        logits, mu, logvar = self(x)
        rec = F.binary_cross_entropy_with_logits(logits, x.flatten(1), reduction="none").sum(1).mean()
        kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1).mean()
        return rec + beta * kl, {"rec": rec.detach(), "kl": kl.detach()}

    @torch.no_grad()
    def sample(self, n):
        return torch.sigmoid(self.decoder(torch.randn(n, self.decoder[0].in_features)))
