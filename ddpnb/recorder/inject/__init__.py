"""Starts the recorder in processes that ddpnb did not start itself: ``site`` is put on their PYTHONPATH."""
