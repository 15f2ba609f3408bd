"""Confusion matrices, written next to the run for the weekly report."""
import json
import os
import tempfile

import torch


class ConfusionReport:
    def __init__(self, accelerator, classes, folder=None):
        self.accelerator = accelerator
        self.classes = classes
        self.folder = folder or os.path.join(tempfile.gettempdir(), f"kws_{os.environ['MASTER_PORT']}")
        # the main process is busy with the console and the checkpoints
        self.write = accelerator.on_last_process(self._write)

    def _write(self, epoch, logits, labels):
        preds = logits.argmax(dim=-1)
        preds, labels = self.accelerator.gather_for_metrics((preds, labels))
        n = len(self.classes)
        matrix = torch.bincount(labels * n + preds, minlength=n * n).view(n, n)
        recall = matrix.diag().float() / matrix.sum(dim=1).clamp(min=1)
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, f"confusion_{epoch}.json"), "w") as handle:
            json.dump(
                {
                    "labels": self.classes,
                    "matrix": matrix.tolist(),
                    "recall": dict(zip(self.classes, recall.tolist())),
                },
                handle,
            )
