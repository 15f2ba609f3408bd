import torch
import torch.distributed as dist

from groups import make_groups
from lm import Stage
from runner import Runner


def text(step, n=8, length=12):
    gen = torch.Generator().manual_seed(step)
    start = torch.randint(0, 40, (n, 1), generator=gen)
    return (start + torch.arange(length + 1)) % 40


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    stage = Stage(rank, world)
    ends = make_groups(world)
    runner = Runner(stage, ends, rank, world)
    optim = torch.optim.Adam(stage.parameters(), lr=5e-3)

    for step in range(30):
        tokens = text(step)
        optim.zero_grad()
        loss = runner.step(tokens, micro=2 if step % 3 else 4)
        optim.step()
        if loss is not None and step % 10 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)

    if runner.at_end:
        check = stage.embed.weight.detach().sum()
        both = [torch.zeros_like(check) for _ in range(dist.get_world_size(ends))]
        dist.all_gather(both, check, group=ends)
        print(f"rank {rank}: tied weights differ by {(both[0] - both[-1]).abs().item():.2e}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
