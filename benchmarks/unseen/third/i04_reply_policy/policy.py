import torch
import torch.nn as nn
import torch.nn.functional as F


class ReplyPolicy(nn.Module):
    """Next-token model over a small inventory of reply tokens."""

    def __init__(self, vocab=20, dim=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h, _ = self.rnn(self.emb(tokens))
        return self.out(h)

    @torch.no_grad()
    def sample(self, prompt, length, generator):
        seq = prompt
        for _ in range(length):
            probs = self(seq)[:, -1].softmax(-1)
            seq = torch.cat([seq, torch.multinomial(probs, 1, generator=generator)], 1)
        return seq


def token_logps(logits, tokens):
    return F.log_softmax(logits, -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def politeness(reply):
    """Programmatic reward: polite tokens are the multiples of four, no immediate repeats."""
    nice = (reply % 4 == 0).float().mean(1)
    repeats = (reply[:, 1:] == reply[:, :-1]).float().mean(1)
    return nice - repeats
