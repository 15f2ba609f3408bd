import argparse
import os
import tempfile

import timm
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from averaging import AveragedEval


def moths(n, seed, size=32):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    x = torch.randn(n, 3, size, size, generator=g)
    for i, k in enumerate(y.tolist()):
        x[i, k % 3, 8 * k:8 * k + 8] += 0.8
    return TensorDataset(x, y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="test_vit")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    train_set = moths(144, 0)
    sampler = DistributedSampler(train_set, shuffle=True, drop_last=True)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    net = timm.create_model(args.model, pretrained=False, num_classes=4, img_size=32)
    averaging = None
    if rank == 0:
        val_loader = DataLoader(moths(64, 1), batch_size=32)
        averaging = AveragedEval(net, os.path.join(tempfile.mkdtemp(prefix="moths-"), "best.pt"))
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if averaging is not None:
                averaging.update(net)
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        if averaging is not None:
            averaging.run(net, val_loader, epoch)
            print(f"epoch {epoch}: train loss {mean.item():.3f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
