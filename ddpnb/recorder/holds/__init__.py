"""Holds: breakpoints at collectives and lines, their conditions, steps, and release."""
