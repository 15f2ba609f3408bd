import torch
import torch.distributed as dist

from feeds import Feed
from model import PostScorer
from sync import average_gradients, same_start


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(40 + rank)

    model = PostScorer()
    same_start(model)
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    feed = Feed(rank)

    for step in range(40):
        words, pictures, where, target = feed.batch(step)
        loss = (model(words, pictures, where) - target).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        average_gradients(model)
        optim.step()

        shown = loss.detach().clone()
        dist.reduce(shown, dst=0)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {shown.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
