"""Ranks that ended while others wait for them, in the diagnosis of a whole Recording."""

from __future__ import annotations

import pytest

from ddpnb.recording.findings import Hint
from ddpnb.recording.stacks import Frame
from tests.rules.recordings import FILE, Rank, Script, diagnose, line, only_finding, record

LOOP = Script(
    """
    def main(rank):
        for batch in batches:
            all_reduce(loss)  # looped
    """
)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((), "after all_reduce #4000 of this group, at least 3 of them at that line."),
        (("barrier",), "after barrier #4000 of this group, at least 2 of them at that line."),
    ],
)
def test_calls_that_are_older_than_the_recording_are_not_left_out_of_a_number(others, said):
    """A rank keeps its last calls only: their number is not that of the calls that it made."""
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).forgets(3997)
        for seq, op in enumerate(("all_reduce", "all_reduce", *(others or ("all_reduce",))), 3998):
            rank.calls(op, LOOP.at("looped") if op == "all_reduce" else line(50), seq=seq, number=seq - 1)
        ranks.append(rank)
    waiting = ranks[0].waits("all_reduce", LOOP.at("looped"), seq=4001, number=4000)
    found = only_finding(record(waiting, ranks[1].finishes(), script=LOOP))
    (evidence,) = [text for text in found.evidence if "finished" in text]
    assert evidence == f"Rank 1 finished {said}"


ROUNDS = Script(
    """
    def main(rank):
        for batch in batches:   # loop
            if broken(model(batch)):
                continue  # next
            loss.backward()  # looped
    """
)


@pytest.mark.parametrize("forwards", [3, 2, 0])
def test_an_iteration_that_may_have_been_left_out_is_no_shorter_loop(forwards):
    """The source has a way around the call: that the loop was shorter is not known. It may be neither."""
    waits = Rank(0, 2).calls("all_reduce", ROUNDS.at("looped")).calls("all_reduce", ROUNDS.at("looped"))
    ends = Rank(1, 2).calls("all_reduce", ROUNDS.at("looped")).calls("all_reduce", ROUNDS.at("looped")).finishes()
    waits.waits("all_reduce", ROUNDS.at("looped")).has_run_forward(3 if forwards else 0)
    found = only_finding(record(waits, ends.has_run_forward(forwards), script=ROUNDS))
    assert (found.code, found.culprits, dict(found.where)[1]) == ("DDP301", (1,), ROUNDS.at("looped"))


EPOCHS = Script(
    """
    def main(rank):
        for epoch in range(epochs):
            for batch in loader:   # inner
                if odd(batch):
                    continue
                all_reduce(loss)  # looped
    """
)


@pytest.mark.parametrize(("batches", "code"), [((2, 2), "DDP301"), ((2, 1), "DDP308")])
def test_loaders_that_counted_their_batches_tell_whether_the_loop_was_shorter(batches, code):
    ranks = []
    for number in range(2):
        rank = Rank(number, 2)
        for _ in range(batches[number]):
            rank.calls("all_reduce", EPOCHS.at("looped"))
        told = {"loader": 0, "step": 0, "batches": batches[number], "steps": batches[number], "complete": True}
        rank.phase("loader", "done", EPOCHS.at("inner"), loader=0, kind="map", own=True)
        ranks.append(rank.phase("data loop", "done", EPOCHS.at("inner"), **told))
    ranks[0].phase("data loop", "open", EPOCHS.at("inner"), loader=0, step=2).waits("all_reduce", EPOCHS.at("looped"))
    found = diagnose(record(ranks[0], ranks[1].finishes(), script=EPOCHS)).findings[0]
    assert (found.code, dict(found.where)[1]) == (code, EPOCHS.at("looped"))


def test_a_return_from_within_the_loop_is_no_uneven_loop():
    script = Script(
        """
        def main(rank):
            for batch in batches:
                if bad(batch):
                    return  # return
                all_reduce(loss)  # looped
        """
    )
    recording = record(
        Rank(0, 2).calls("all_reduce", script.at("looped")).waits("all_reduce", script.at("looped")),
        Rank(1, 2).calls("all_reduce", script.at("looped")).finishes(),
        script=script,
    )
    found = only_finding(recording)
    assert (found.code, found.culprits) == ("DDP301", (1,))
    reason = "`if bad(batch): return` decides which ranks get there"
    assert found.hint == Hint(script.file, script.line("return"), reason)
    assert dict(found.where)[1] == script.at("looped")


def test_a_rank_that_goes_on_after_an_error():
    script = Script(
        """
        def main(loader):
            for x in loader:
                try:
                    step(x)   # reduce
                except ValueError:   # handler
                    continue
        """
    )
    at = script.at("reduce")
    full = Rank(0, 2).calls("all_reduce", at).calls("all_reduce", at).waits("all_reduce", at)
    short = Rank(1, 2).calls("all_reduce", at).calls("all_reduce", at).finishes()
    found = only_finding(record(full, short, script=script))
    assert (found.code, found.culprits) == ("DDP301", (1,))
    assert dict(found.where)[1] == at


def test_a_forward_that_is_not_counted_yet_does_not_hide_a_shorter_loop():
    """The rank that waits in the broadcast of a forward has not begun to count that forward."""
    script = Script(
        """
        def main(loader):
            for x in loader:
                model(x)   # forward
        """
    )
    at = script.at("forward")
    full = Rank(0, 2).calls("broadcast", at, root=0).waits("broadcast", at, root=0).has_run_forward(1)
    short = Rank(1, 2).calls("broadcast", at, root=0).finishes().has_run_forward(1)
    found = only_finding(record(full, short, script=script))
    assert (found.code, found.culprits) == ("DDP308", (1,))


def looped(script, *marks, forwards=(0, 0)):
    """Rank 0 waits in its third call, rank 1 has ended after two; the frames are those of rank 0, outermost first."""
    at = script.at(marks[-1])
    ranks = [Rank(number, 2).calls("all_reduce", at).calls("all_reduce", at) for number in (0, 1)]
    ranks[0].waits("all_reduce", at).has_run_forward(forwards[0])
    ranks[0].has_stack(*(Frame(FILE, script.line(mark), "main") for mark in marks))
    return only_finding(record(ranks[0], ranks[1].finishes().has_run_forward(forwards[1]), script=script))


def test_without_a_source_no_loop_is_claimed():
    ranks = [Rank(number, 2).calls("all_reduce", line(3)) for number in (0, 1)]
    found = only_finding(record(ranks[0].waits("all_reduce", line(3)), ranks[1].finishes()))
    assert (found.code, found.culprits) == ("DDP301", (1,))


@pytest.mark.parametrize(
    ("text", "marks", "code"),
    [
        ("for x in loader:\n    with suppress(E):\n        loss.backward()   # b", ["b"], "DDP301"),
        ("for x in loader:\n    if bad(x):\n        continue\n    for y in x:\n        y.backward()   # b", ["b"], "DDP301"),
        ("for x in loader:\n    try:\n        step(x)   # s\n    except E:\n        pass\n\ndef step(x):\n    for y in x:\n        y()   # b",
         ["s", "b"], "DDP301"),
        ("for x in loader:\n    step(x)   # s\n\ndef step(x):\n    x.backward()   # b", ["s", "b"], "DDP308"),
    ],
)  # fmt: skip
def test_callers_and_all_loops_tell_whether_every_iteration_comes_to_the_call(text, marks, code):
    found = looped(Script(text), *marks)
    assert (found.code, found.culprits) == (code, (1,))
    assert (found.certainty == "likely") == (code == "DDP308")


def test_ranks_that_ended_after_unlike_numbers_of_calls_are_told_apart():
    script = Script("for x in loader:\n    x.backward()   # b")
    ranks = [Rank(number, 3) for number in range(3)]
    for rank, calls in zip(ranks, (2, 1, 2), strict=True):
        for _ in range(calls):
            rank.calls("all_reduce", script.at("b"))
    ranks[0].waits("all_reduce", script.at("b"))
    found = only_finding(record(ranks[0], ranks[1].finishes(), ranks[2].finishes(), script=script))
    assert found.summary == "Ranks 1 and 2 left the loop earlier; rank 0 is in one more all_reduce."
    assert found.evidence[1:3] == (
        "Rank 1 finished after 1 collective in this group, at that line.",
        "Rank 2 finished after 2 collectives in this group, 2 of them at that line.",
    )


def test_no_number_is_said_of_a_line_that_is_not_among_the_recorded_calls():
    ranks = [Rank(number, 2).forgets(500).calls("broadcast", line(5), root=0, seq=501, number=500) for number in (0, 1)]
    found = only_finding(record(ranks[0].waits("all_reduce", line(3), seq=502, number=501), ranks[1].finishes()))
    assert "Rank 1 finished after broadcast #501 of this group." in found.evidence
