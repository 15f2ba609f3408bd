"""The processes of the ranks: devices, environment variables, engines, and their state seen from the host."""
