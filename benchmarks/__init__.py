"""Measurements, run by hand: ``python -m benchmarks.NAME``. Medians, with the peer in the same run."""
