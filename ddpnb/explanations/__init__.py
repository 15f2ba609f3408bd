"""What codes, error texts and findings mean, and what to change."""
