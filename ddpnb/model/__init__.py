"""What we know: frozen dataclasses of ranks, calls, phases, stacks, recordings and findings."""
