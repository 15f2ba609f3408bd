import os
from functools import cached_property


class Roles:
    """Who does what in this job."""

    def __init__(self):
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])

    @property
    def is_writer(self):
        return self.rank == 0

    @cached_property
    def is_evaluator(self):
        return self.rank == self.world - 1
