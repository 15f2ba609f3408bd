"""Frozen dataclasses of ranks, calls, phases, stacks, recordings and findings."""
