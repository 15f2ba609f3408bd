import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from bio.corpus import load_sentences, shard_of
from bio.pipeline import build


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    sentences = shard_of(load_sentences(144), rank, world)
    encoder, net = build(sentences)
    model = DDP(net)
    optim = torch.optim.Adam(model.parameters(), lr=3e-3)

    for epoch in range(4):
        for words, tags in encoder.batches(sentences, size=6):
            loss = torch.nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten())
            optim.zero_grad()
            loss.backward()
            optim.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
