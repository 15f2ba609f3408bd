"""Faults, realised on a rank."""
