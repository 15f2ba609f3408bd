"""Findings about saving checkpoints and resuming from them."""
