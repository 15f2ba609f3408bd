"""What the ranks are fed."""
