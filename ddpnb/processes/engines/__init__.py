"""Ranks as engines of ipyparallel: the ``RankProcesses`` of ``launch()``. Nothing else in ``processes`` imports it."""
