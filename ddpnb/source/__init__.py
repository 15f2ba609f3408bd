"""What the user's source text says around a line: what could have happened, never what did."""
