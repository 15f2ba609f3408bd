"""Errors that block no rank: diverged replicas, wrong gradients, wrong data."""
