"""Hooks on functions of torch, and the events other than collectives that they record."""
