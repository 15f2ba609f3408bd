"""What is tested here is how the processes of one World start and end: each has its own."""

from __future__ import annotations

import pytest

from ddpnb.ranks import forks
from ddpnb.ranks.engines import cluster


@pytest.fixture(scope="package", autouse=True)
def own_forks(one_import):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "ForkServer", forks.ForkServer)
        yield
