"""Figures, by matplotlib: the time line, the time account, replicas that differ, scaling, quantities over time."""
