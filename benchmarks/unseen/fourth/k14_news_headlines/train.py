import json
import os
import tempfile

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import broadcast_object_list, set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from data import TOPICS, Headlines, build_cache, collate


class TopicNet(nn.Module):
    def __init__(self, vocab=120, width=24):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, width, mode="mean")
        self.head = nn.Linear(width, len(TOPICS))

    def forward(self, ids, offsets):
        return self.head(self.bag(ids, offsets))


def evaluate(accelerator, model, loader):
    model.eval()
    preds, refs = [], []
    for ids, offsets, topics in loader:
        with torch.no_grad():
            out = model(ids, offsets).argmax(-1)
        out, topics = accelerator.gather_for_metrics((out, topics))
        if accelerator.is_main_process:
            preds.append(out)
            refs.append(topics)
    model.train()
    if not accelerator.is_main_process:
        return None
    preds, refs = torch.cat(preds), torch.cat(refs)
    return {"accuracy": float((preds == refs).float().mean()), "n": len(refs)}


def main():
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)])
    set_seed(2)
    folder = [tempfile.mkdtemp(prefix="headlines-") if accelerator.is_main_process else None]
    broadcast_object_list(folder)
    cache = os.path.join(folder[0], "rows.json")
    with accelerator.main_process_first():
        if not os.path.exists(cache):
            build_cache(cache)
    train_loader = DataLoader(Headlines(cache, "train"), batch_size=8, shuffle=True, collate_fn=collate)
    eval_loader = DataLoader(Headlines(cache, "eval"), batch_size=8, collate_fn=collate)
    model = TopicNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, train_loader, eval_loader)

    for epoch in range(8):
        ema = None
        for ids, offsets, topics in train_loader:
            loss = F.cross_entropy(model(ids, offsets), topics)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            ema = loss.item() if ema is None else 0.9 * ema + 0.1 * loss.item()
        metrics = evaluate(accelerator, model, eval_loader)
        if metrics is not None:
            print(f"epoch {epoch}: {metrics}")
            with open(os.path.join(folder[0], "metrics.jsonl"), "a") as f:
                f.write(json.dumps(metrics) + "\n")
            if metrics["accuracy"] > 0.9:
                accelerator.set_trigger()
        if accelerator.check_trigger():
            break

    accelerator.wait_for_everyone()
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        accelerator.save(state, os.path.join(folder[0], "model.pt"))
        print("saved after epoch", epoch, "ema", round(ema, 3))
    accelerator.end_training()


if __name__ == "__main__":
    main()
