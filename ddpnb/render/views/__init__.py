"""A Recording as rows, lanes and trees, for any renderer. No input, no output, no clock."""
