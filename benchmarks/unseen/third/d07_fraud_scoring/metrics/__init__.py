from .book import MetricBook
from .rates import MeanLoss, Recall

__all__ = ["MetricBook", "MeanLoss", "Recall"]
