"""Where it runs: devices, the environment of the ranks, engines in rank order, looks from the host."""
