"""Every row of the catalogue that can be reproduced on a CPU is reached by a fault or by a pitfall."""

from __future__ import annotations

import difflib

from ddpnb import pitfalls
from ddpnb.recording.faults import KINDS
from ddpnb.rules import catalogue

# They need GPUs, or several of them; nothing on a CPU gives them.
ON_GPUS = {"DDP201", "DDP203", "DDP204", "DDP206", "DDP207", "DDP208", "DDP604"}
# It takes a library that is no dependency of ours: see tests/rules/causes/test_refine.py.
FOREIGN = {"DDP702"}
# Reached on live ranks by tests/scenarios/test_attach_unrecorded.py and test_never_wrapped.py, tests/recorder/process/test_own_ranks.py,
# and tests/torture/test_hosts.py.
BY_TESTS = {"DDP318", "DDP417", "DDP707", "DDP708"}


def test_every_row_is_reached():
    reached = {kind.finding for kind in KINDS.values()} | {pitfall.finding for pitfall in pitfalls.all_of()}
    reached |= {code for pitfall in pitfalls.all_of() for code in pitfall.also}
    assert set(catalogue.codes()) - ON_GPUS - FOREIGN - BY_TESTS - reached == set()


def test_the_pitfalls_are_many_and_whole():
    found = pitfalls.all_of()
    assert len(found) >= 24
    for one in found:
        assert one.finding in catalogue.codes() and one.ranks == 2, one.name
        assert one.broken.is_file() and one.difference, one.name
        before, after = (path.read_text().splitlines() for path in (one.broken, one.fixed))
        changes = difflib.unified_diff(before, after, "broken.py", "fixed.py", lineterm="", n=2)
        assert "\n".join(changes) == one.difference, one.name
        assert one.why and one.look.startswith("- ") and one.fix and one.title, one.name
        assert one.broken.read_text().startswith('"""'), one.name
        if one.line:
            assert one.line in one.broken.read_text(), one.name
