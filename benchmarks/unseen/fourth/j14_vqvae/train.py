import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from codebook import Quantizer
from model import PatchVQ
from patches import PatchSource, prototypes


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    quantizer = Quantizer(prototypes(), revive_every=6)
    net = PatchVQ(quantizer)
    model = DDP(net)
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    source = PatchSource(rank)

    for step in range(40):
        x = source.next()
        out, vq_loss = model(x)
        loss = (out - x).pow(2).mean() + vq_loss
        optim.zero_grad()
        loss.backward()
        optim.step()
        quantizer.after_step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print("codebook norm", round(quantizer.book.norm().item(), 4), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
