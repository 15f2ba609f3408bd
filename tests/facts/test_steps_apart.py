"""Pipelines whose stages make unlike numbers of sends and receives from one step on."""

from __future__ import annotations

from dataclasses import replace

from tests.rules.recordings import Rank, line, only_finding, record

SEND, RECEIVE, BACK = line(40), line(36), line(53)


def stage(rank, world, micro=2, own=None):
    """Steps of a pipeline that sends activations on and gradients back; ``own``: its micro-batches in each step."""
    made = Rank(rank, world)
    for number in own or (micro,) * 3:
        for _ in range(number):
            if rank > 0:
                made.receives(rank - 1, RECEIVE)
            if rank < world - 1:
                made.sends(rank + 1, SEND)
        for _ in range(number):
            if rank < world - 1:
                made.receives(rank + 1, line(50))
            if rank > 0:
                made.sends(rank - 1, BACK)
        made.updated()
    return made


def test_the_last_of_three_stages_takes_one_micro_batch_more():
    """It receives what the next step sends; so the ranks go on until all are in sends."""
    first = stage(0, 3, own=(2, 2, 0)).sends(1, SEND).sends(1, SEND).waits("send", SEND, peer=1)
    second = stage(1, 3, own=(2, 2, 0)).receives(0, RECEIVE).sends(2, SEND).receives(0, RECEIVE)
    second.waits("send", SEND, peer=2)
    last = stage(2, 3, own=(2, 2)).receives(1, RECEIVE).waits("send", BACK, peer=1)
    found = only_finding(record(first, second, last))
    assert (found.code, found.culprits, found.waiting, found.sides) == ("DDP307", (2,), (0, 1), ())
    assert found.certainty == "likely"
    assert found.where[0] == (2, RECEIVE)
    assert any(text.startswith("In optimizer step 3, rank 2 made 1 receive from rank 1") for text in found.evidence)
    assert found.remedy.startswith("Make as many sends as receives")


def test_of_two_stages_nothing_tells_which_counts_wrongly():
    first = stage(0, 2, own=(2, 2, 0)).sends(1, SEND).waits("send", SEND, peer=1)
    last = stage(1, 2, own=(2, 2)).receives(0, RECEIVE).waits("send", BACK, peer=0)
    found = only_finding(record(first, last))
    assert (found.culprits, found.sides, found.certainty) == ((), ((0,), (1,)), "proven")
    assert found.where[0] == (1, RECEIVE)
    assert "No recorded fact tells which side is at fault: rank 0 or rank 1." in found.evidence


def test_stages_that_step_their_optimizers_at_different_times():
    """Rank 0 has two optimizers: the numbers of its steps say nothing."""
    first = stage(0, 2, own=(2, 0, 2, 0)).waits("recv", line(60), peer=1, tag=9)
    last = stage(1, 2, own=(2, 2)).waits("recv", line(60), peer=0, tag=9)
    found = only_finding(record(first, last))
    assert (found.culprits, found.sides) == ((0, 1), ())
    assert "optimizer step" not in str(found.evidence)


def test_steps_of_which_calls_are_forgotten():
    """The first step that is known in part is not compared."""
    first = stage(0, 2, own=(2, 2, 2, 0)).sends(1, SEND).waits("send", SEND, peer=1, idle=20.0)
    last = stage(1, 2, own=(2, 2, 2)).receives(0, RECEIVE).waits("send", BACK, peer=0, idle=20.0)
    whole = record(first, last)
    cut = {
        rank: replace(known, calls=known.calls[2 + rank :], forgotten=2 + rank) for rank, known in whole.ranks.items()
    }
    found = only_finding(replace(whole, ranks=cut))
    assert found.sides == ((0,), (1,))
    assert any(text.startswith("In optimizer step 4") for text in found.evidence)
