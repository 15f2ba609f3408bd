"""What ``flight_recorder`` is made of: processes that read dumps as columns, and what is read from these."""
