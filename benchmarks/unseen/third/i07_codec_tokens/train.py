import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from meters import FrameLoss
from shards import CODES, BucketReader


class CodecLM(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(CODES, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, CODES)

    def forward(self, codes):
        h, _ = self.rnn(self.emb(codes))
        return self.head(h)


def run_epoch(model, opt, reader, meter, rank, epoch):
    with Join([model]):
        for i, (codes, nxt) in enumerate(reader):
            logits = model(codes)
            loss = F.cross_entropy(logits.flatten(0, 1), nxt.flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            shown = meter.update(loss.item(), nxt.numel())
            if rank == 0 and i % 4 == 0:
                print(f"epoch {epoch} batch {i} loss {shown:.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    model = DDP(CodecLM())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    reader, meter = BucketReader(rank, world), FrameLoss()
    for epoch in range(3):
        run_epoch(model, opt, reader, meter, rank, epoch)
    print(f"rank {rank}: {meter.updates} updates", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
