"""Support-ticket reranker: pairwise loss, gradient accumulation, per-process patience."""
import os
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from torch import nn
from torch.utils.data import DataLoader

from tickets import Patience, TicketPairs, held_out_queue, spot_checks


class Reranker(nn.Module):
    def __init__(self, vocab=300, dim=24):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.score = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Dropout(0.1), nn.Linear(dim, 1))

    def forward(self, tokens):
        return self.score(self.bag(tokens)).squeeze(-1)


def local_loss(accelerator, model, queue):
    net = accelerator.unwrap_model(model).eval()
    with torch.no_grad():
        margin = net(queue["good"]) - net(queue["bad"])
    net.train()
    return nn.functional.softplus(-margin).mean().item()


def annotate(accelerator, model):
    """Scores of the spot checks for the reviewers, as many on each process as it gets."""
    net = accelerator.unwrap_model(model).eval()
    rows = []
    with accelerator.split_between_processes(spot_checks(), apply_padding=False) as mine:
        for name, tokens in mine:
            with torch.no_grad():
                rows.append({"ticket": name, "score": net(tokens[None]).item()})
    net.train()
    return gather_object(rows)


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    set_seed(21, device_specific=True)
    out = Path(tempfile.gettempdir()) / f"reranker_{os.environ['MASTER_PORT']}"
    with accelerator.main_process_first():
        out.mkdir(exist_ok=True)

    loader = DataLoader(TicketPairs(250), batch_size=8, shuffle=True)
    model = Reranker()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    queue = held_out_queue(accelerator.process_index)
    patience = Patience(limit=2, min_delta=0.02)

    for epoch in range(12):
        for good, bad in loader:
            with accelerator.accumulate(model):
                both = model(torch.cat([good, bad]))
                pos, neg = both.chunk(2)
                accelerator.backward(nn.functional.softplus(neg - pos).mean())
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()

        mine = local_loss(accelerator, model, queue)
        if patience.exhausted(mine):
            accelerator.set_trigger()
        if accelerator.is_main_process:
            with open(out / "history.txt", "a") as handle:
                handle.write(f"{epoch} {mine:.4f}\n")
        if accelerator.check_trigger():
            accelerator.print(f"a queue stopped improving after epoch {epoch}")
            break

    rows = annotate(accelerator, model)
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        torch.save(state, out / "reranker.pt")
        print(f"{len(rows)} spot checks, best {max(rows, key=lambda r: r['score'])['ticket']}")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
