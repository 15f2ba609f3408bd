"""The comparison of paths: where ranks part, which of them left the others, and what differed before they met again."""
