"""What only patience supports is a warning; what is proven stays an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import CallState
from ddpnb.recording.facts.patience import PATIENCE
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.stacks import Frame
from ddpnb.rules import engine
from ddpnb.rules.diagnose import diagnose
from ddpnb.rules.unproven import sentence
from tests.rules.recordings import FILE, Rank, group, line, record

LONG = 3 * PATIENCE
SUBPROCESS = Frame("/usr/lib/python3.13/subprocess.py", 550, "run", user=False)


def waiting(rank=0, size=2):
    return Rank(rank, size).waits("all_reduce", line(9), idle=LONG)


SECOND = 10**9
INNER = group(0, 1, ordinal=1)


def asking(rank=0, ago_s=0.01, **more):
    """A rank that does nothing but ask whether its call is complete; ``record`` says that a minute has passed."""
    made = Rank(rank, 2).issues("all_reduce", line(9), asked_ns=int((60 - ago_s) * SECOND), **more)
    return made.computes(line(10))


def after_a_minute(*ranks):
    return replace(record(*ranks), taken_ns=60 * SECOND)


@pytest.mark.parametrize(
    "other",
    [
        asking(1, group=INNER),
        Rank(1, 2).waits("all_reduce", line(12), group=INNER),
        asking(1, group=INNER).idles(0, line(10)),
    ],
    ids=["both ask", "one is blocked", "one sleeps between the questions"],
)
def test_ranks_that_ask_for_calls_of_different_groups(other):
    """Nothing was said of ranks that compute: they may stop asking, so that nothing is proven."""
    recording = after_a_minute(asking(), other)
    found = diagnose(recording)
    (finding,) = [one for one in found.findings if one.severity != "note"]
    assert (finding.code, finding.severity, finding.certainty, finding.culprits) == (
        "DDP306",
        "warning",
        "timed",
        (0, 1),
    )
    assert (found.outcome, found.settled) == ("ok", False)
    said = sentence(recording, finding)
    assert (
        "wait for each other in different groups" in said
        and f"rank 0 at {FILE}:10" in said
        and said.endswith("; not proven")
    )
    assert diagnose(recording, end_after_patience=True).outcome == "hang"


@pytest.mark.parametrize(
    "ranks",
    [
        (asking(ago_s=5), asking(1, ago_s=5, group=INNER)),
        (asking(), Rank(1, 2).computes(line(11))),
        (asking(), asking(1)),
    ],
    ids=["asked once", "the other computes", "one call"],
)
def test_ranks_that_ask_and_may_go_on(ranks):
    assert [one for one in diagnose(after_a_minute(*ranks)).findings if one.severity != "note"] == []


BLOCKED = {
    "blocked elsewhere": (waiting(), Rank(1, 2).idles(LONG, line(11))),
    "stopped": (waiting(), Rank(1, 2).stops(LONG)),
    "all of them": tuple(Rank(rank, 2).calls("all_reduce", line(9)).idles(4 * LONG, line(11)) for rank in range(2)),
}


@pytest.mark.parametrize("ranks", BLOCKED.values(), ids=BLOCKED)
def test_ranks_that_may_go_on_are_a_warning(ranks):
    found = diagnose(record(*ranks))
    (finding,) = [one for one in found.findings if one.severity != "note"]
    assert (finding.severity, finding.certainty, finding.unproven) == ("warning", "timed", True)
    assert (found.outcome, found.settled) == ("ok", False)
    asked = diagnose(record(*ranks), end_after_patience=True)
    assert (asked.outcome, asked.settled, asked.errors[0].code) == ("hang", True, finding.code)


def test_a_proof_stays_an_error_beside_what_is_not_proven():
    """Ranks 0 and 1 wait for one that has ended; rank 3 is blocked elsewhere."""
    ended = (Rank(0, 4).waits("all_reduce", line(9)), Rank(1, 4).waits("all_reduce", line(9)), Rank(2, 4).finishes())
    found = diagnose(record(*ended, Rank(3, 4).idles(LONG, line(11))))
    assert (found.outcome, found.settled, [one.code for one in found.errors]) == ("hang", True, ["DDP301"])
    assert found.errors[0].certainty == "proven" and found.errors[0].culprits == (2,)


def test_a_failure_is_one_although_the_others_are_blocked_elsewhere():
    found = diagnose(record(Rank(0, 2).raises("ValueError", "bad", line(5)), Rank(1, 2).idles(LONG, line(11))))
    assert (found.outcome, found.settled, found.errors[0].code) == ("crash", True, "DDP312")


def with_timeout(seconds):
    """Rank 0 waits in a group of its own with rank 1, which waits for it in the default group."""
    inside = replace(group(0, 1, ordinal=1), name="1")
    ranks = [Rank(rank, 2).makes_group([0, 1], line(3), timeout_s=seconds) for rank in range(2)]
    return record(ranks[0].waits("all_reduce", line(9), group=inside), ranks[1].waits("barrier", line(14)))


def test_a_wait_whose_time_out_is_near_ends_nothing():
    """The program may count on the exception: a check of the connection."""
    near = diagnose(with_timeout(3.0))
    assert (near.outcome, near.settled) == ("ok", False)
    assert [(one.code, one.severity) for one in near.findings] == [("DDP306", "warning")]
    for far in (
        diagnose(with_timeout(1800.0)),
        diagnose(with_timeout(None)),
        diagnose(with_timeout(3.0), end_after_patience=True),
    ):
        assert (far.outcome, far.settled, far.errors[0].code) == ("hang", True, "DDP306")


def refused(rank, elements, state=CallState.FENCED):
    return Rank(rank, 2).calls("all_reduce", line(5), shape=(elements,), state=state)


@pytest.mark.parametrize("state", [CallState.FENCED, CallState.FAILED, CallState.REFUSED])
def test_a_mismatch_that_the_program_caught_is_a_note(state):
    ranks = [refused(rank, 2 + rank, state).calls("barrier", line(8)).finishes() for rank in range(2)]
    found = diagnose(record(*ranks))
    assert (found.outcome, found.settled) == ("ok", True)
    ((finding, evidence),) = [(one, one.evidence) for one in found.findings]
    assert (finding.code, finding.severity) == ("DDP303", "note") and evidence[0].startswith("The program caught")


def test_a_mismatch_that_one_rank_did_not_survive_is_an_error():
    ranks = (
        refused(0, 2).raises("CollectiveMismatch", "", line(5)),
        refused(1, 3).calls("barrier", line(8)).finishes(),
    )
    found = diagnose(record(*ranks))
    assert (found.outcome, found.errors[0].code) == ("hang", "DDP303")


def test_nothing_is_settled_while_the_program_handles_what_the_fence_raised():
    """Rank 0 waits in its next call, and rank 1 writes a checkpoint before it comes there."""
    ranks = (refused(0, 2).waits("barrier", line(8), idle=LONG), refused(1, 3).computes(line(7)))
    assert not diagnose(record(*ranks)).settled


def test_the_sentence_says_where_a_rank_waits_and_for_how_long():
    rank = Rank(1, 4).idles(12.0, waits_on="a child process").has_stack(Frame(FILE, 30, "load"), SUBPROCESS)
    recording = record(*(Rank(other, 4).waits("all_reduce", line(9)) for other in (0, 2, 3)), rank)
    (finding,) = [found for found in diagnose(recording).findings if found.unproven]
    assert sentence(recording, finding) == (
        f"rank 1 has waited 12 s in subprocess.run (a child process) at {FILE}:30 in load; ranks 0, 2 and 3 wait for it; not proven"
    )


def test_the_sentence_says_what_a_wait_may_be_in():
    rank = Rank(1, 2).idles(12.0, line(8), waits_on="a lock").has_loaded("mpi4py")
    recording = record(Rank(0, 2).waits("all_reduce", line(9)), rank)
    (finding,) = [found for found in diagnose(recording).findings if found.unproven]
    told = "rank 1 has waited 12 s for a lock (it may be in mpi4py) at"
    assert sentence(recording, finding).startswith(told)


def test_of_others_the_sentence_is_the_summary():
    recording = with_timeout(3.0)
    (finding,) = diagnose(recording).findings
    assert sentence(recording, finding) == f"{finding.summary.rstrip('.')}; not proven"


@pytest.mark.parametrize(
    ("other", "times"), [(Rank(1, 2).finishes(), 1), (Rank(1, 2).idles(LONG, line(5)), 2)], ids=["proven", "timed"]
)
def test_rules_are_asked_again_only_where_patience_decides(monkeypatch, other, times):
    asked = []
    ask = engine.ask
    monkeypatch.setattr(engine, "ask", lambda snap, rules: asked.append(snap) or ask(snap, rules))
    assert diagnose(record(waiting(), other)).findings
    assert len(asked) == times


def test_a_rule_that_asks_for_the_patience_is_asked_again():
    snap = Snapshot(record(waiting(), Rank(1, 2).finishes()))
    assert (snap.timed, snap.patience, snap.timed) == (False, PATIENCE, True)
