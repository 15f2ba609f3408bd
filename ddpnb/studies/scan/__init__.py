"""Static analysis of the user's source: it is parsed, never run."""
