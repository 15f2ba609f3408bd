"""Metrics of the intent classifier, and their history for the model card."""
import json
import os

import numpy as np
from accelerate import PartialState


class IntentMetrics:
    def __init__(self, names, history):
        self.names = names
        self.history = history
        self.state = PartialState()

    def f1_scores(self, predictions, labels):
        scores = []
        for index in range(len(self.names)):
            tp = np.sum((predictions == index) & (labels == index))
            wrong = np.sum((predictions == index) != (labels == index))
            scores.append(2 * tp / (2 * tp + wrong) if tp else 0.0)
        return scores

    def append(self, metrics):
        os.makedirs(os.path.dirname(self.history), exist_ok=True)
        with open(self.history, "a") as handle:
            handle.write(json.dumps(metrics) + "\n")

    def __call__(self, prediction):
        if not self.state.is_main_process:  # one row an epoch is enough
            return {}
        predictions = prediction.predictions.argmax(axis=-1)
        labels = prediction.label_ids
        scores = self.f1_scores(predictions, labels)
        metrics = {"accuracy": float((predictions == labels).mean()), "macro_f1": float(np.mean(scores))}
        self.append({**metrics, **{f"f1_{n}": float(s) for n, s in zip(self.names, scores)}})
        return metrics
