import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm

from evaluation import run_eval

CFG = dict(num_epochs=2, batch_size=8, eval_steps=5, lr=3e-3)


class TinySummarizer(nn.Module):
    def __init__(self, vocab=60, dim=20):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.enc = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        _, h = self.enc(self.emb(ids))
        return self.out(h[-1])


def dataset(n, seed):
    gen = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 60, (n, 7), generator=gen)
    return TensorDataset(ids, ids[:, 0])


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(17)
    train_dl = DataLoader(dataset(256, 1), batch_size=CFG["batch_size"], shuffle=True)
    eval_dl = DataLoader(dataset(64, 2), batch_size=CFG["batch_size"])
    model = TinySummarizer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG["lr"])
    model, optimizer, train_dl, eval_dl = accelerator.prepare(model, optimizer, train_dl, eval_dl)
    total_steps = CFG["num_epochs"] * len(train_dl)
    progress_bar = tqdm(
        range(total_steps), total=total_steps, disable=not accelerator.is_local_main_process
    )
    for epoch in range(CFG["num_epochs"]):
        for ids, target in train_dl:
            loss = nn.functional.cross_entropy(model(ids), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            progress_bar.update(1)
            if progress_bar.n and progress_bar.n % CFG["eval_steps"] == 0:
                score = run_eval(accelerator, model, eval_dl)
                accelerator.print(f"step {progress_bar.n}: eval loss {score:.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
