"""State dicts of which nothing fits."""

from __future__ import annotations

from ddpnb.rules.checkpoints import nothing_loaded
from tests.rules.recordings import line, recorded, the_finding

LOADED = line(21)


def test_a_state_of_which_nothing_fits():
    told = {"strict": False, "matched": 0, "given": 2, "keys": ["module.fc.weight", "module.fc.bias"]}
    found = the_finding(nothing_loaded.find, recorded(lambda r: r.loads("model", LOADED, **told).finishes()))
    assert (found.code, found.severity, found.culprits) == ("DDP602", "error", (0, 1, 2, 3))
    assert found.where[0] == (0, LOADED) and "module.fc.weight" in found.evidence[0]


def test_a_state_of_which_a_part_fits():
    told = {"strict": False, "matched": 1, "given": 2}
    assert nothing_loaded.find(recorded(lambda r: r.loads("model", LOADED, **told).finishes())) is None
    assert nothing_loaded.find(recorded(lambda r: r.loads("model", LOADED).finishes())) is None
