"""Control of live ranks: run code, hold and step, inspect, inject faults, release and restart."""
