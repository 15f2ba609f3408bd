"""What findings about replicas have in common: ranks, places and moments are those of the samples that show them."""

from __future__ import annotations

from ddpnb.rules.divergence import replicas
from tests.rules.recordings import Rank, line, record


def test_a_finding_knows_when_each_rank_was_where_it_shows():
    ranks = [Rank(number, 3).wraps().trains(2, line(9)) for number in range(3)]
    ranks[1].drifts({"fc.weight": 9})
    recording = record(*(rank.forward(line(12)) for rank in ranks))
    (finding,) = replicas.find(recording)
    assert finding.culprits == (1,)
    assert finding.moments == tuple((rank, record.samples[-1].at_ns) for rank, record in recording.ranks.items())
    assert "moments" not in finding.to_json()
