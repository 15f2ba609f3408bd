import torch
import torch.distributed as dist

from clips import ClipSource
from reducer import StreamReducer
from streams import TwoStream


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = TwoStream()
    optim = torch.optim.SGD(model.parameters(), lr=0.05)
    reducer = StreamReducer({"rgb": model.rgb, "flow": model.flow, "head": model.head})
    source = ClipSource(rank)

    for step in range(30):
        rgb, flow, label = source.next(step)
        loss = torch.nn.functional.cross_entropy(model(rgb, flow), label)
        optim.zero_grad()
        loss.backward()
        reducer.touched(rgb=rgb.shape[1], flow=flow.shape[1])
        reducer.flush()
        optim.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
