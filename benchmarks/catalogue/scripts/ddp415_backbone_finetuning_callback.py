# expect: DDP415
# also: DDP405
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
# Re-enacts: Lightning #20340 (BackboneFinetuning does not work with DDP: unfrozen after wrapping, never reduced)
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU())
        self.head = nn.Linear(20, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


class BackboneFinetuning:
    def __init__(self, unfreeze_at_epoch=1, lr=0.02):
        self.epoch, self.lr = unfreeze_at_epoch, lr

    @staticmethod
    def freeze(module):
        for p in module.parameters():
            p.requires_grad = False  # <- culprit

    def before_fit(self, model):
        self.freeze(model.backbone)  # <- culprit

    def on_epoch_start(self, epoch, model, opt):
        if epoch == self.epoch:
            self._thaw(model.backbone, opt)  # <- culprit

    def _thaw(self, module, opt):
        params = list(module.parameters())
        for p in params:
            p.requires_grad = True  # <- culprit
        opt.add_param_group({"params": params, "lr": self.lr})


def get_data(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=g)
    return TensorDataset(x, x[:, :3].argmax(1))


def fit(model, data, callback, epochs=3):
    callback.before_fit(model)
    net = DDP(model)
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        callback.on_epoch_start(epoch, model, opt)
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    return net


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(42)
    net = fit(Classifier(), get_data(16 * dist.get_world_size()), BackboneFinetuning())
    print(dist.get_rank(), [round(p.double().sum().item(), 5) for p in net.parameters()], flush=True)
    dist.barrier()
    dist.destroy_process_group()
