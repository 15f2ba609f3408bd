# expect: DDP413
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# Re-enacts: issue "'DistributedDataParallel' object has no attribute 'generate'" at the first sampling interval.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class CharModel(nn.Module):
    def __init__(self, vocab=30, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.out(h)

    @torch.no_grad()
    def generate(self, prompt, n):
        for _ in range(n):
            nxt = self(prompt)[:, -1].argmax(-1, keepdim=True)
            prompt = torch.cat([prompt, nxt], 1)
        return prompt


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(CharModel())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(rank)
    for step in range(1, 7):
        ids = torch.randint(0, 30, (4, 9), generator=g)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 3 == 0:
            text = model.generate(torch.zeros(1, 1, dtype=torch.long), 5)  # <- culprit
            if rank == 0:
                print(step, text.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
