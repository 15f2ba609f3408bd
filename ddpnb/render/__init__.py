"""How it reads: palette, text for terminals, HTML for notebooks."""
