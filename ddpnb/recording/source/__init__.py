"""The source text around a line: what could have happened, never what did."""
