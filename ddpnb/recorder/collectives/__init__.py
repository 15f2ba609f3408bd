"""The door that each collective passes, the fence, and the process groups."""
