"""What ranks did differently before a finding shows."""

from __future__ import annotations

import pytest

from ddpnb.recording.facts.paths.partings import Differences
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.parting import Harmless
from ddpnb.rules import located
from tests.rules.recordings import Rank, Script, record

SCRIPT = Script("""
    def main(rank):
        if rank == 0:   # speaks
            print(loss)   # speech
        if loss > best:   # skips
            optimizer.step()   # step
        done()   # after
""")


def decision(word, to):
    at = SCRIPT.at(word)
    return Harmless(at, "", (((0,), SCRIPT.at(to)), ((1,), at)))


@pytest.mark.parametrize("turned", [False, True])
def test_what_only_prints_comes_last(turned):
    shown = [decision("speaks", "speech"), decision("skips", "step")]
    finding = Finding(FindingType("DDP405", "replica-drift"), "They differ.", (0,), waiting=(1,))
    recording = record(Rank(0, 2), Rank(1, 2), script=SCRIPT)
    differences = Differences(harmless=tuple(reversed(shown) if turned else shown))
    found = located._differed(recording, finding, (0, 1), differences)
    assert [str(SCRIPT.at(word)) in text for word, text in zip(("skips", "speaks"), found.evidence, strict=True)] == [
        True,
        True,
    ]
