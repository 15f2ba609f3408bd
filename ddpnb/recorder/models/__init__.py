"""Models that are followed: digests, losses, inputs, optimizers and tensors; where a NaN is recorded."""
