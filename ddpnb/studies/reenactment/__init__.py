"""From a Recording to a small program that makes the same calls: who makes which, on few ranks, with small tensors."""
