"""``ddpnb.export()`` of bisections; recordings are in ``tests/reenactment`` and ``tests/world/test_reenact.py``."""

import pytest

from ddpnb import export
from ddpnb.bisection.functions import FunctionSpace, PrefixSpace
from ddpnb.bisection.search import Search
from ddpnb.bisection.space import Component
from ddpnb.control.bisecting import Bisection
from ddpnb.errors import UsageError
from tests.control.test_bisecting import HANG, Probes

PARTS = ("load", "train", "evaluate")


def bisection_of(space):
    return Bisection(space, Search(space.space), Probes(lambda names: HANG if "train" in names else None))


@pytest.mark.parametrize("space", [FunctionSpace([Component(name) for name in PARTS]), PrefixSpace(PARTS)])
def test_functions_are_no_command_that_a_script_could_run(space, tmp_path):
    bisection = bisection_of(space)
    assert bisection.run().outcome == "found"
    with pytest.raises(UsageError, match="functions have no command line") as refused:
        export(bisection, tmp_path / "repro.sh")
    assert "Run those that fail with world.run(), and export that run." in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_bisection_in_progress_has_no_command_yet(tmp_path):
    with pytest.raises(UsageError, match="no smallest failing command") as refused:
        export(bisection_of(FunctionSpace([Component(name) for name in PARTS])), tmp_path / "repro.sh")
    assert "Search until a cause is found." in str(refused.value)
    assert not list(tmp_path.iterdir())
