import torch
import torch.distributed as dist
import torch.nn.functional as F

from .data import batches


class Trainer:
    def __init__(self, model, optimizer, pool, rank, world, callbacks):
        self.model, self.optimizer, self.pool = model, optimizer, pool
        self.rank, self.world = rank, world
        self.callbacks = list(callbacks)
        self.stop_training = False

    def loss(self, feats, phones):
        return F.cross_entropy(self.model(feats).flatten(0, 1), phones.flatten())

    def train_epoch(self, speakers, seed):
        self.model.train()
        total = torch.zeros(2)
        for feats, phones in batches(self.pool, speakers, 4, seed):
            self.optimizer.zero_grad()
            loss = self.loss(feats, phones)
            loss.backward()
            self.optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    @torch.no_grad()
    def validate(self, speakers):
        self.model.eval()
        net = self.model.module
        losses = []
        for feats, phones in batches(self.pool, speakers, 4, seed=90):
            losses.append(F.cross_entropy(net(feats).flatten(0, 1), phones.flatten()))
        return torch.stack(losses).mean().item()

    def fit(self, stages, dev_speakers):
        for stage, speakers, epochs in stages:
            mine = speakers[self.rank::self.world]
            for epoch in range(epochs):
                logs = {"epoch": epoch, "stage": stage}
                logs["train_loss"] = self.train_epoch(mine, seed=epoch)
                logs["val_loss"] = self.validate(dev_speakers[self.rank::self.world])
                for cb in self.callbacks:
                    cb.on_epoch_end(self, logs)
                if self.stop_training:
                    return stage, epoch
        return stage, epoch
