"""Token classifier with one expert per rank."""
import torch
import torch.distributed as dist
import torch.nn as nn

from router import HashRouter

VOCAB, WIDTH, TOKENS, STEPS = 96, 16, 48, 10
PAD = 0


def tokens(step, rank):
    gen = torch.Generator().manual_seed(50 * step + rank)
    ids = (torch.arange(TOKENS) + 12 * step + 1) % VOCAB
    ids = ids[torch.randperm(TOKENS, generator=gen)]
    document = TOKENS - 38 if rank == 1 and step % 7 == 5 else TOKENS - 2
    ids[document:] = PAD
    return ids


class ExpertNet(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        torch.manual_seed(0)
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.head = nn.Linear(WIDTH, 4)
        torch.manual_seed(100 + rank)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        self.router = HashRouter(world, factor=1.5)

    def shared(self):
        return list(self.emb.parameters()) + list(self.head.parameters())

    def forward(self, ids):
        rows = self.emb(ids)
        plan = self.router.plan(ids)
        at_expert = self.router.dispatch(rows, plan)
        return self.head(rows + self.router.combine(self.expert(at_expert), plan))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = ExpertNet(rank, world)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(STEPS):
        ids = tokens(step, rank)
        loss = nn.functional.cross_entropy(net(ids), ids % 4)
        opt.zero_grad()
        loss.backward()
        for p in net.shared():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
