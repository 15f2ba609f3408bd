"""Which exceptions handlers caught, and what ranks ran after the fence had refused their call."""

from __future__ import annotations

import pytest

from ddpnb.diagnosis.execution.handled import handled
from ddpnb.model.calls import CallState
from tests.diagnosis.recordings import Rank, Script, diagnose, record

SCRIPT = Script("""
    def main():
        for batch in loader:            # loop
            try:                        # try
                loss = model(batch)     # forward
                loss.backward()         # backward
            except ValueError as error: # except
                log(error)              # log
                continue                # again
            step()                      # step
""")
STEP = "loop try forward backward step"


def event(rank: Rank, mark: str, exception: str, raised: str = "forward") -> Rank:
    place = {"file": SCRIPT.file, "line": SCRIPT.line(raised), "function": "main"}
    return rank.event("exception handled", SCRIPT.at(mark), exception=exception, raised=place)


def test_an_except_that_an_exception_only_passed_has_not_handled_it():
    rank = event(event(Rank(0, 2), "except", "KeyError"), "except", "ValueError")
    event(event(rank, "log", "ValueError"), "again", "ValueError")
    recording = record(rank, Rank(1, 2), script=SCRIPT)
    assert [(one.exception, one.site.line) for one in handled(recording, 0)] == [("ValueError", SCRIPT.line("log"))]
    # Of a file of which the text is not known it may have been the handler.
    assert [one.exception for one in handled(record(rank, Rank(1, 2)), 0)] == [
        "KeyError",
        "ValueError",
        "ValueError",
        "ValueError",
    ]


def trains(rank: int, world: int, swallows: bool) -> Rank:
    made = Rank(rank, world)
    for _ in range(2):
        made.runs(SCRIPT, STEP).calls("all_gather_into_tensor", SCRIPT.at("backward"))
        made.calls("reduce_scatter_tensor", SCRIPT.at("backward"))
    if swallows:  # a batch raises, and the next forward meets the backward of the others
        made.runs(SCRIPT, "loop try forward except log again loop try forward backward")
        event(event(made, "except", "ValueError"), "log", "ValueError")
        return made.calls("all_gather_into_tensor", SCRIPT.at("backward"), state=CallState.FENCED)
    made.runs(SCRIPT, "loop try forward backward except")  # the refusal passes the handler
    event(made, "except", "CollectiveMismatch", "backward")
    return made.calls("reduce_scatter_tensor", SCRIPT.at("backward"), state=CallState.FENCED)


@pytest.mark.parametrize(("world", "culprit"), [(2, 0), (2, 1), (3, 2)])
def test_a_call_that_a_handler_skipped_at_one_line(world, culprit):
    """All are at one line, in different calls: the handler that one ran says which of them skipped one."""
    found = diagnose(record(*(trains(r, world, r == culprit) for r in range(world)), script=SCRIPT)).findings[0]
    assert (found.code, found.culprits, found.certainty) == ("DDP301", (culprit,), "likely")
    assert next(site.line for rank, site in found.where if rank == culprit) == SCRIPT.line("log")
    assert any("There it handled ValueError" in text for text in found.evidence)


def test_what_ran_after_a_refusal_explains_nothing():
    ranks = [trains(r, 2, swallows=False) for r in range(2)]
    ranks[1].calls("barrier", SCRIPT.at("step"))
    text = str(diagnose(record(*ranks, script=SCRIPT)).findings)
    assert "handled CollectiveMismatch" not in text
