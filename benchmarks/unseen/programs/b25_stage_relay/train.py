import torch
import torch.distributed as dist

from exchange import shuffle_rows
from stages import Stage


def main(steps=8):
    dist.init_process_group("gloo")
    stage = Stage()
    for step in range(steps):
        gen = torch.Generator().manual_seed(step)
        batch = torch.randn(16, 12, generator=gen)
        losses = [stage.run(micro) for micro in batch.split([4, 6, 2, 4])]
        stage.step()
        if stage.last and step % 4 == 0:
            print(f"step {step} loss {torch.stack(losses).mean().item():.4f}")
    rows = torch.full((5 + 3 * stage.rank, 2), float(stage.rank))
    mine = shuffle_rows(rows)
    total = torch.tensor([len(mine)])
    dist.reduce(total, dst=dist.get_world_size() - 1)
    if stage.last:
        expected = sum(5 + 3 * r for r in range(stage.world))
        assert total.item() == expected, (total, expected)
        print(f"{expected} rows exchanged, {len(mine)} here")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
