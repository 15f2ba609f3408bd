"""Train a small language model and print a sample from time to time."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Bigram(nn.Module):
    def __init__(self, vocab=20):
        super().__init__()
        self.logits = nn.Embedding(vocab, vocab)

    def forward(self, tokens):
        return self.logits(tokens)

    @torch.no_grad()
    def generate(self, token, length=8):
        text = [token]
        for _ in range(length):
            text.append(self(torch.tensor(text[-1])).argmax().item())
        return text


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Bigram())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for step in range(9):
        tokens = torch.randint(0, 20, (64,))
        loss = nn.functional.cross_entropy(model(tokens), (tokens + 1) % 20)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0 and dist.get_rank() == 0:
            print(step, model.module.generate(0))
    dist.destroy_process_group()


main()
