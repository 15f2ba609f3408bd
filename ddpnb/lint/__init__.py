"""What the user's source says, read as a syntax tree and never run."""
