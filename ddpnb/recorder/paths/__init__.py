"""The path of a rank, and whether ranks have parted."""
