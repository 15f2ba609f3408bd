"""What it means: pure functions of a Recording. No input, no output, no clock."""
