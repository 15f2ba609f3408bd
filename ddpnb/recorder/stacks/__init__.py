"""Stacks of this process's threads, the variables in them, and what a thread waits for."""
