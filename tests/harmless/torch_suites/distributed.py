"""PyTorch's own tests of collectives and of DistributedDataParallel, as its ``test_distributed_spawn.py`` runs them."""

import reported
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


if __name__ == "__main__":
    reported.main(TestDistBackendWithSpawn)
