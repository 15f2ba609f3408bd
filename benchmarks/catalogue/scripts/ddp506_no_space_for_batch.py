# expect: DDP506
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""A container with 64 MB of shared memory, modelled by an account of what the workers put there."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SHM_SIZE = 64 << 20


class SharedMemory:
    """Counts the bytes of the batches that are on their way; says what the real one says when it is full."""

    def __init__(self, size):
        self.size, self.used, self.files = size, 0, 0

    def take(self, size):
        self.used += size
        self.files += 1
        if self.used > self.size:
            raise RuntimeError(f"unable to write to file </torch_{4000 + self.files}_0>: No space left on device (28)")


shm = SharedMemory(SHM_SIZE)


def collate(samples):
    spectra, labels = zip(*samples, strict=True)
    batch = torch.stack(spectra), torch.stack(labels)
    shm.take(sum(tensor.nbytes for tensor in batch))  # <- culprit
    return batch


class Spectra(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        spectrum = torch.rand(1024, generator=g)
        padded = spectrum.repeat(600)
        return padded, spectrum.argmax() % 7


def main():
    dist.init_process_group("gloo")
    dataset = Spectra()
    sampler = DistributedSampler(dataset, seed=5)
    loader = DataLoader(dataset, 8, sampler=sampler, num_workers=1, collate_fn=collate)  # <- culprit
    model = DistributedDataParallel(nn.Linear(1024, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for padded, label in loader:  # <- culprit
        loss = nn.functional.cross_entropy(model(padded[:, :1024]), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
