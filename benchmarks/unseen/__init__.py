"""Programs that nobody who writes rules had seen when they were run first."""
