import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class PairData(L.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        gen = torch.Generator().manual_seed(90)
        x = torch.randn(240, 12, generator=gen)
        y = x[:, :3].argmax(1)
        self.train, self.val = TensorDataset(x[:192], y[:192]), TensorDataset(x[192:], y[192:])

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch_size)
