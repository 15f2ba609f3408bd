"""Which ranks wait for which, which are blocked forever, and why."""
