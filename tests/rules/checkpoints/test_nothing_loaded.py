"""State dicts of which nothing fits."""

from __future__ import annotations

from tests.rules.recordings import asked, line, recorded

LOADED = line(21)


def found(**told):
    return asked("DDP602", recorded(lambda r: r.loads("model", LOADED, **told).finishes()))


def test_a_state_of_which_nothing_fits():
    (one,) = found(matched=0, given=2, keys=["module.fc.weight", "module.fc.bias"])
    assert (one.severity, one.culprits) == ("error", (0, 1, 2, 3))
    assert one.where[0] == (0, LOADED) and "module.fc.weight" in one.evidence[0]


def test_a_state_of_which_a_part_fits():
    assert found(matched=1, given=2) == found() == []
