"""Who waits for whom, who can never go on, and why."""
