"""Detection heads of the page layout model: region class, region box, table cells."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LayoutHead(nn.Module):
    NUM_KINDS = 5
    TABLE = 3

    def __init__(self, dim):
        super().__init__()
        self.kind = nn.Linear(dim, self.NUM_KINDS)
        self.box = nn.Linear(dim, 4)
        self.cells = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 2))

    def forward(self, feats, target):
        losses = {}
        losses["loss_kind"] = F.cross_entropy(self.kind(feats), target["kind"])
        losses["loss_box"] = F.smooth_l1_loss(self.box(feats), target["box"])
        losses.update(self._cell_loss(feats, target))
        return losses

    def _cell_loss(self, feats, target):
        tables = target["kind"] == self.TABLE
        if not tables.any():
            return {}
        grid = self.cells(feats[tables])
        return {"loss_cells": F.smooth_l1_loss(grid, target["grid"][tables])}


class LayoutModel(nn.Module):
    def __init__(self, in_dim=24, dim=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(in_dim, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU())
        self.head = LayoutHead(dim)

    def forward(self, batch):
        return self.head(self.trunk(batch["regions"]), batch["target"])
