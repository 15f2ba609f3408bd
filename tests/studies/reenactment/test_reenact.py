"""``ddpnb.export()`` of bisections; recordings are in ``tests/reenactment`` and ``tests/scenarios/test_reenact.py``."""

import pytest

from ddpnb import export
from ddpnb.errors import UsageError
from ddpnb.studies.bisection.bisecting import Bisection
from ddpnb.studies.bisection.probing import Ran
from ddpnb.studies.bisection.search import Search
from ddpnb.studies.bisection.space import Component, SetSpace
from ddpnb.studies.bisection.world_probes import WorldProber
from tests.studies.bisection.test_bisecting import HANG

PARTS = ("load", "train", "evaluate")


class Probes(WorldProber):
    def run(self, probe):
        return Ran([HANG] if "train" in probe.on else ())


def bisection_of_functions():
    return Bisection(Search(SetSpace([Component(name) for name in PARTS])), Probes(None, None, (), ()))


def test_functions_are_no_command_that_a_script_could_run(tmp_path):
    bisection = bisection_of_functions()
    assert bisection.run().outcome == "found"
    with pytest.raises(UsageError, match="functions have no command line") as refused:
        export(bisection, tmp_path / "repro.sh")
    assert "Run those that fail with world.run(), and export that run." in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_bisection_in_progress_has_no_command_yet(tmp_path):
    with pytest.raises(UsageError, match="no smallest failing command") as refused:
        export(bisection_of_functions(), tmp_path / "repro.sh")
    assert "Search until a cause is found." in str(refused.value)
    assert not list(tmp_path.iterdir())
