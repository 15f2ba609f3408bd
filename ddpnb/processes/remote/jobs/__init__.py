"""The ranks of a job on other hosts than that where `ddpnb run -- COMMAND` has started it, and the agents there."""
