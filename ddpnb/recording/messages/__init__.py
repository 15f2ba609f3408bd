"""Errors explained: what torch, and Python around it, raise in distributed training, in the user's terms."""
