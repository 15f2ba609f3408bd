"""Findings about the environment of the ranks: backends, versions, time-outs, threads, memory, variables."""
