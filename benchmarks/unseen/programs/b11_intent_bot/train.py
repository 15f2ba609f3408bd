import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from corpus import INTENTS, IntentDataset
from staging import local_copy


class BagOfWords(nn.Module):
    def __init__(self, vocab=40, dim=24):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim)
        self.fc = nn.Linear(dim, len(INTENTS))

    def forward(self, ids):
        return self.fc(self.emb(ids))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(100)
    with local_copy() as path:
        dataset = IntentDataset(path)
        sampler = DistributedSampler(dataset, shuffle=True, drop_last=False)
        loader = DataLoader(dataset, batch_size=10, sampler=sampler)
        model = DDP(BagOfWords())
        opt = torch.optim.Adam(model.parameters(), lr=2e-2)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for ids, intent in loader:
                loss = nn.functional.cross_entropy(model(ids), intent)
                opt.zero_grad()
                loss.backward()
                opt.step()
            if dist.get_rank() == 0:
                print(f"epoch {epoch} loss {loss.item():.4f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
