"""The search for what makes a program fail: which configuration to try next, and what the answers say. No input, no output."""
