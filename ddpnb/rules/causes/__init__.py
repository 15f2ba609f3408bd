"""The cause of a hang or a failure: what the wait-for graph proves, explained by what the script did."""
