# expect: DDP311
# ranks: 2
# culprits: [n-1]
# outcome: crash
# plain: R
# Re-enacts: issue "Connection closed by peer", in truth one process died of a segmentation violation in a native extension.
import ctypes
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class NativeResampler:
    """Binding of a C routine; reads `n` floats from the address it is given."""

    def resample(self, tensor, n):
        address = tensor.data_ptr() if tensor.numel() else 0
        return bytes((ctypes.c_float * n).from_address(address))  # <- culprit


def load_clip(rank, world, step):
    length = 64
    if rank == world - 1 and step == 2:
        length = 0  # an empty recording
    return torch.rand(length)


def features(resampler, clip):
    raw = resampler.resample(clip, 64)  # <- culprit
    return torch.frombuffer(bytearray(raw), dtype=torch.float32).reshape(8, 8)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    resampler = NativeResampler()
    for step in range(5):
        x = features(resampler, load_clip(rank, world, step))  # <- culprit
        loss = model(x).logsumexp(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print("step", step, round(loss.item(), 4), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
