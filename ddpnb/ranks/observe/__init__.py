"""Observes ranks from outside: takes Recordings, copies output, and detects when a run has ended or hangs."""
