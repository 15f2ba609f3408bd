from .manifest import load_manifest
from .batching import FrameBudgetBatchSampler, UtteranceSet, pad_collate

__all__ = ["load_manifest", "FrameBudgetBatchSampler", "UtteranceSet", "pad_collate"]
