"""Faults, implemented on a rank."""
