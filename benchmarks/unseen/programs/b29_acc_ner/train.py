import shutil

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

from prepare import loaders, workdir


class Tagger(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.tag = nn.Linear(dim, 2)

    def forward(self, ids):
        return self.tag(self.emb(ids)).transpose(1, 2)


@torch.no_grad()
def evaluate(accelerator, model, loader):
    seen, hits = 0, 0
    model.eval()
    for ids, tags in loader:
        pred, ref = accelerator.gather_for_metrics((model(ids).argmax(1), tags))
        seen += len(ref)
        hits += (pred == ref).float().mean(1).sum().item()
    model.train()
    return hits / seen, seen


def main(epochs=3):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(11)
    folder = workdir(accelerator)
    train_dl, val_dl = loaders(accelerator, folder)
    model = Tagger()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-2)
    model, opt, train_dl, val_dl = accelerator.prepare(model, opt, train_dl, val_dl)
    best, history = -1.0, []
    for epoch in range(epochs):
        for ids, tags in train_dl:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(ids), tags)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
        acc, seen = evaluate(accelerator, model, val_dl)
        if accelerator.is_main_process:
            history.append(acc)
            print(f"epoch {epoch}: accuracy {acc:.3f} on {seen} sentences")
            if acc > best:
                best = acc
                state = accelerator.unwrap_model(model).state_dict()
                accelerator.save(state, folder / "best.pt")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).load_state_dict(torch.load(folder / "best.pt", weights_only=True))
    acc, _ = evaluate(accelerator, model, val_dl)
    if accelerator.is_main_process:
        assert abs(acc - max(history)) < 1e-6
        shutil.rmtree(folder)
    accelerator.end_training()


if __name__ == "__main__":
    main()
