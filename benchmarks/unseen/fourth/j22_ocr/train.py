import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from crops import CropStream
from guard import StepGuard
from reader import LineReader


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(23)
    model = DDP(LineReader())
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    stream, guard = CropStream(rank), StepGuard()

    for step in range(40):
        with guard.attempt():
            images, chars = stream.fetch(step)
        if guard.any_failed():
            continue
        loss = torch.nn.functional.cross_entropy(model(images).flatten(0, 1), chars.flatten())
        if guard.any_true(not torch.isfinite(loss)):
            continue
        optim.zero_grad()
        loss.backward()
        optim.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"rank {rank}: {guard.own} failures here, {guard.skipped} steps skipped", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
