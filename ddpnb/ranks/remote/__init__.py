"""Ranks on other hosts: an agent on each of these starts them, and says what that host knows of them."""
