import torch


class HardNegatives:
    """Passages that the first-stage ranker likes but the annotators did not mark, shared by all workers."""

    def __init__(self, accelerator, width, capacity=64, threshold=0.8):
        self.accelerator = accelerator
        self.capacity = capacity
        self.threshold = threshold
        self.bank = torch.zeros(0, width)

    def add(self, passages, first_stage, relevant):
        hard = passages[(first_stage > self.threshold) & ~relevant]
        if len(hard) == 0:
            return self.bank
        hard = self.accelerator.pad_across_processes(hard, dim=0, pad_index=0.0)
        merged = self.accelerator.gather(hard)
        merged = merged[merged.abs().sum(1) > 0]
        self.bank = torch.cat([self.bank, merged])[-self.capacity:]
        return self.bank
