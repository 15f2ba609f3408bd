import torch


class RunningAccuracy:
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.correct = 0
        self.total = 0

    def add(self, logits, labels):
        preds, refs = self.accelerator.gather_for_metrics((logits.argmax(-1), labels))
        self.correct += int((preds == refs).sum())
        self.total += refs.numel()

    def value(self):
        return self.correct / max(1, self.total)


@torch.no_grad()
def evaluate(accelerator, model, loader):
    metric = RunningAccuracy(accelerator)
    was_training = model.training
    model.eval()
    net = accelerator.unwrap_model(model)
    for x, y in loader:
        metric.add(net(x), y)
    model.train(was_training)
    return metric.value()
