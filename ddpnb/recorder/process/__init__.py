"""This process: how it starts, runs scripts and cells, and ends."""
