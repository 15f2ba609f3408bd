"""Point-to-point calls that no rank answers, in the diagnosis of a whole Recording."""

from __future__ import annotations

import re

import pytest

from ddpnb.recording import recording_file
from ddpnb.recording.calls import CallState
from tests.recordings.scenario import FOLDER
from tests.rules.recordings import Rank, Script, diagnose, group, line, only_finding, record, recorded


def test_two_ranks_that_both_receive_first():
    recording = record(
        Rank(0).waits("recv", line(5), peer=1),
        Rank(1).waits("recv", line(5), peer=0),
        Rank(2).finishes(),
        Rank(3).finishes(),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (0, 1), ())
    assert set(found.where) == {(0, line(5)), (1, line(5))}


def test_a_pipeline_whose_stages_count_differently():
    """Both stages wait in a receive; the counts say more than the circle."""
    first, second = Rank(0, 2), Rank(1, 2)
    for _ in range(8):
        first.sends(1, line(5))
        second.receives(0, line(15))
    recording = record(first.waits("recv", line(9), peer=1, tag=3), second.waits("recv", line(15), peer=0))
    found = only_finding(recording)
    assert "Rank 1 waits for send 9 of rank 0; rank 0 has made 8." in found.evidence
    assert "Rank 0 waits for send 1 of rank 1 with tag 3; rank 1 has made 0." in found.evidence


def test_a_peer_that_uses_another_tag_or_group_has_made_these_calls():
    first = Rank(0, 2).sends(1, line(4), tag=3).sends(1, line(5), tag=3).sends(1, line(6), group=group(0, 1, ordinal=1))
    second = (
        Rank(1, 2)
        .receives(0, line(14), tag=3)
        .receives(0, line(15), tag=3)
        .receives(0, line(16), group=group(0, 1, ordinal=1))
    )
    recording = record(first.waits("recv", line(9), peer=1, tag=2), second.waits("recv", line(19), peer=0))
    found = only_finding(recording)
    expected = (
        "Rank 1 waits for send 1 of rank 0 with tag 0; rank 0 has made 0 of them, but 2 with tag 3 at "
        "/home/user/train.py:5 in main, 1 in group [0, 1] #2 at /home/user/train.py:6 in main."
    )
    assert [line for line in found.evidence if line.startswith("Rank 1 waits")] == [expected]


_WAITS_FOR = re.compile(
    r"Rank (\d+) waits for (send|receive) (\d+) of rank (\d+)(?: with tag (\d+))?; rank \d+ has made (\d+)"
)
_BESIDE = re.compile(r"(\d+) with tag (\d+) at ")


@pytest.mark.parametrize(
    "name", ["p2p-both_receive", "p2p-ring", "p2p-other_tag", "p2p-never_sent", "shared-another_tag"]
)
def test_every_number_is_that_of_the_recording(name):
    recording = recording_file.load(FOLDER / f"victims/{name}.ddpnb")
    (finding,) = diagnose(recording).errors
    told = [found for text in finding.evidence if (found := _WAITS_FOR.match(text))]
    assert told
    for found in told:
        rank, _, _, peer, tag, made = (
            int(group or 0) if group is None or group.isdigit() else 0 for group in found.groups()
        )
        op = "send" if found[2] == "send" else "recv"

        def count(tag, op=op, rank=rank, peer=peer):
            return sum((c.op, c.peer, c.tag) == (op, rank, tag) for c in recording.ranks[peer].calls)

        assert made == count(tag)
        assert int(found[3]) == 1 + sum(
            (c.op, c.peer, c.tag, c.state) == ("recv" if op == "send" else "send", peer, tag, CallState.COMPLETED)
            for c in recording.ranks[rank].calls
        )
        assert all(int(n) == count(int(t)) for n, t in _BESIDE.findall(found.string))


def test_a_ring_of_receives():
    recording = record(*(Rank(rank).waits("recv", line(5), peer=(rank - 1) % 4) for rank in range(4)))
    assert only_finding(recording).culprits == (0, 1, 2, 3)


def test_a_send_and_a_receive_with_unlike_tags():
    recording = record(
        Rank(0, 2).waits("send", line(5), peer=1, tag=5), Rank(1, 2).waits("recv", line(8), peer=0, tag=7)
    )
    found = only_finding(recording)
    assert found.code == "DDP307"
    assert any("tag 5" in text for text in found.evidence)
    assert any("tag 7" in text for text in found.evidence)


def test_a_receive_for_which_nobody_sends():
    recording = record(
        Rank(0).finishes(), Rank(1).finishes(), Rank(2).finishes(), Rank(3).waits("recv", line(5), peer=0)
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (0,), (3,))


def test_a_rank_that_waits_behind_a_receive_is_a_waiting_rank():
    recording = record(
        Rank(0, 3).finishes(),
        Rank(1, 3).waits("recv", line(5), peer=0),
        Rank(2, 3).waits("barrier", line(9), group=group(1, 2)),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (0,), (1, 2))


def test_a_send_whose_work_was_thrown_away():
    recording = record(
        Rank(0, 2).sends(1, line(4), state=CallState.DROPPED).finishes(),
        Rank(1, 2).waits("recv", line(9), peer=0, idle=20.0),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (0,), (1,))
    assert "discarded" in found.summary
    assert any(str(line(4)) in text for text in found.evidence)


@pytest.mark.parametrize("idle", [2.5, 3.5])
def test_a_send_whose_work_was_thrown_away_may_have_arrived_until_patience_runs_out(idle):
    script = Script("""
        import torch.distributed as dist

        def main(x, rank):
            if rank == 0:
                dist.isend(x, 1)   # send
            else:
                dist.recv(x, 0)   # receive
    """)

    def make(rank):
        if rank.rank:
            return rank.waits("recv", script.at("receive"), peer=0, idle=idle)
        return rank.sends(1, script.at("send"), state=CallState.DROPPED).finishes()

    found = diagnose(recorded(make, 2, script), patience=3.0)
    assert found.settled is (idle > 3.0)
    assert [finding.code for finding in found.errors] == (["DDP307"] if found.settled else ["DDP316"])


@pytest.mark.parametrize("op", ["send", "recv"])
def test_a_peer_that_is_not_in_the_group_is_no_culprit(op):
    """The door writes -1 for it."""
    found = diagnose(record(Rank(0, 2).waits(op, line(5), peer=-1), Rank(1, 2).finishes()))
    assert all(rank in (0, 1) for one in found.findings for rank in (*one.culprits, *one.waiting))
    assert not any("rank -1" in one.summary for one in found.findings)


def test_a_send_that_nobody_ever_answers_and_one_that_was_answered_before():
    """Rank 1 was set up as part of a ring: its second send has no receive on rank 0, round after round."""
    strip = Rank(0, 2).sends(1, line(31), tag=1).receives(1, line(32), tag=0)
    strip.waits("send", line(34), peer=1, tag=1)
    ring = Rank(1, 2).sends(0, line(31), tag=0).receives(0, line(32), tag=1)
    ring.waits("send", line(34), peer=0, tag=1)
    found = only_finding(record(strip, ring))
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (1,), (0,))


def test_a_send_and_a_receive_that_each_have_another_peer_in_mind():
    """Either may have the wrong peer: nothing recorded tells which."""
    ranks = [Rank(r, 4) for r in range(4)]
    for sender in (0, 1):
        ranks[sender].sends(sender + 1, line(37))
        ranks[sender + 1].receives(sender, line(33))
    ranks[0].waits("send", line(37), peer=1)
    ranks[1].waits("send", line(37), peer=2)
    found = only_finding(
        record(*ranks[:2], ranks[2].waits("send", line(37), peer=3), ranks[3].waits("recv", line(33), peer=1))
    )
    assert (found.code, found.culprits, found.sides, found.waiting) == ("DDP307", (), ((2,), (3,)), (0, 1))


@pytest.mark.parametrize("idle", [0.5, 20.0])
def test_sends_after_calls_that_are_forgotten(idle):
    """A receive from any rank may be among these; if it were, the send would not wait for long."""
    ranks = [
        Rank(r, 2).sends(1 - r, line(3)).receives(1 - r, line(4)).waits("send", line(5), peer=1 - r, idle=idle)
        for r in range(2)
    ]
    recording = record(*(rank.forgets(9) for rank in ranks))
    if idle < 10:
        assert diagnose(recording).findings == ()
    else:
        assert only_finding(recording).culprits == (0, 1)
