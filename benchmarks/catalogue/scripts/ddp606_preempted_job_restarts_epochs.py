# expect: DDP606
# ranks: 2
# culprits: range(n)
# outcome: any
# plain: S
# Re-enacts: question on preemption: the checkpoint holds epoch and random state, but the restart begins at epoch 0 again.
import io
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Run:
    def __init__(self):
        torch.manual_seed(0)
        g = torch.Generator().manual_seed(3)
        data = TensorDataset(torch.randn(48, 6, generator=g))
        self.sampler = DistributedSampler(data, shuffle=True)
        self.loader = DataLoader(data, batch_size=4, sampler=self.sampler)
        self.model = DDP(nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 6)))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.epoch = 0

    def checkpoint(self):
        buf = io.BytesIO()
        torch.save({"model": self.model.module.state_dict(), "optimizer": self.opt.state_dict(),
                    "epoch": self.epoch, "rng_state": torch.get_rng_state()}, buf)
        return buf.getvalue()

    def restore(self, blob):
        ckpt = torch.load(io.BytesIO(blob))
        self.model.module.load_state_dict(ckpt["model"])  # <- culprit
        self.opt.load_state_dict(ckpt["optimizer"])  # <- culprit

    def train(self, epochs):
        while self.epoch < epochs:
            self.sampler.set_epoch(self.epoch)  # <- culprit
            for (x,) in self.loader:
                loss = (self.model(x) - x).pow(2).mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            if dist.get_rank() == 0:
                print(f"epoch {self.epoch}: {loss.item():.3f}", flush=True)
            self.epoch += 1


def main():
    dist.init_process_group("gloo")
    first = Run()
    first.train(epochs=2)  # ... and then the slot is taken away
    blob = first.checkpoint()
    second = Run()
    second.restore(blob)  # <- culprit
    second.train(epochs=4)  # <- culprit
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
