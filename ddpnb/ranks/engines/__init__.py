"""Ranks as engines of ipyparallel: the ``OwnedRanks`` of ``launch()``. Nothing else in ``processes`` imports it."""
