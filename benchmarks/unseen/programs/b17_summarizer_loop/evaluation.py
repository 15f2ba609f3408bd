import torch


@torch.no_grad()
def run_eval(accelerator, model, loader):
    model.eval()
    losses = []
    for ids, target in loader:
        logits = model(ids)
        loss = torch.nn.functional.cross_entropy(logits, target)
        losses.append(accelerator.gather_for_metrics(loss.repeat(len(ids))))
    model.train()
    return torch.cat(losses).mean().item()
