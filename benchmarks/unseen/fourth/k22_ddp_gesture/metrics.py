from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score


class EvalMetrics(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.collection = MetricCollection(
            {
                "acc": MulticlassAccuracy(n_classes, average="micro"),
                "f1": MulticlassF1Score(n_classes, average="macro"),
            }
        )

    def update(self, logits, labels):
        self.collection.update(logits, labels)

    def summary(self):
        values = {k: float(v) for k, v in self.collection.compute().items()}
        return values

    def reset(self):
        self.collection.reset()
