import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from model import FaultNet
from plant import readings_of, windows


def train(model, optim, line, epochs):
    seen = 0
    for epoch in range(epochs):
        with Join([model]):
            for x, y in windows(readings_of(line), seed=epoch):
                if len(x) < 2:
                    continue
                loss = torch.nn.functional.cross_entropy(model(x), y)
                optim.zero_grad()
                loss.backward()
                optim.step()
                seen += len(x)
    return seen


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(77)
    model = DDP(FaultNet())
    optim = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = train(model, optim, line=rank, epochs=3)

    total = torch.tensor([seen])
    dist.all_reduce(total)
    print(f"rank {rank}: {seen} of {total.item()} windows", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
