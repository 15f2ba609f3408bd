"""Recordings of scenarios: what real ranks recorded, and what is diagnosed from it.

``NAME.ddpnb`` is the Recording of a run, without paths, process IDs, ports and clocks of the machine (``portable.py``);
``NAME.json`` is its diagnosis. ``make test`` diagnoses the recordings; ``make test-all`` runs the scenarios and writes
those that changed (``scenario.py``). ``python -m tests.recordings.text FILE`` prints a recording, also for ``git diff``.
"""
