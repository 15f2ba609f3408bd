import torch.nn.functional as F

from utils.report import Reporter


def per_class(logits, mask):
    pred = logits.argmax(1)
    rows = []
    for c in mask.unique().tolist():
        here = mask == c
        rows.append((c, (pred[here] == c).float().mean().item()))
    return rows


def fit(model, optim, source, steps, report_every):
    reporter = Reporter(capacity=16)
    for step in range(1, steps + 1):
        image, mask = source.next()
        logits = model(image)
        loss = F.cross_entropy(logits, mask)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % report_every == 0:
            reporter.publish(step, loss.item(), per_class(logits, mask))
