"""Which ranks ran which line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.events.runs import LinesNotRecorded
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.render.views.folded import Fold, folded
from ddpnb.render.views.source_lines import SourceLine, source_view
from tests.rules.recordings import Rank, Script, record

SCRIPT = Script("""
    def main():
        for batch in loader:            # loop
            loss = model(batch)         # forward

            if is_bad(loss):            # check
                return                  # leave
            all_reduce(loss)            # reduce
        barrier()                       # barrier
""")
HELPER = Script("def is_bad(loss):\n    return loss > 1   # bad\n", "/home/user/checks.py")
USUAL = "loop forward check reduce"


def trains(rank: Rank, last: str) -> Rank:
    for _ in range(3):
        rank.runs(SCRIPT, USUAL).calls("all_reduce", SCRIPT.at("reduce"))
    return rank.runs(SCRIPT, last)


def hung(world: int = 4) -> Recording:
    left = trains(Rank(1, world), "loop forward check leave").finishes()
    waits = (trains(Rank(rank, world), USUAL).waits("all_reduce", SCRIPT.at("reduce")) for rank in range(world))
    return record(*(left if one.rank == 1 else one for one in waits), script=SCRIPT)


def row(view, mark: str) -> SourceLine:
    return view.rows[SCRIPT.line(mark) - 1]


def of(recording: Recording, **records: RankRecord) -> Recording:
    return replace(recording, ranks={**recording.ranks, **{int(name[4:]): one for name, one in records.items()}})


def test_the_lines_on_which_ranks_part_since_the_last_call_of_all():
    view = source_view(hung())
    assert (view.file, view.title, view.ranks, view.window) == (SCRIPT.file, "since all_reduce #3", (0, 1, 2, 3), -1)
    assert [one.number for one in view.rows if one.only_some] == [SCRIPT.line("leave"), SCRIPT.line("reduce")]
    assert (row(view, "leave").ranks, row(view, "leave").words) == ((1,), "only rank 1")
    assert (row(view, "reduce").others, row(view, "reduce").words) == ((1,), "not rank 1")
    assert row(view, "forward").ranks == (0, 1, 2, 3) and not row(view, "forward").words
    assert row(view, "barrier").code and row(view, "barrier").ranks == ()
    assert not view.rows[3].code and view.rows[3].others == ()  # blank: neither run nor not
    assert len(view.rows) == 8 and view.notes == ()


def test_an_earlier_part_and_the_whole_run():
    recording = hung()
    before = source_view(recording, window=-2)
    assert (before.title, before.parting) == ("all_reduce #2 to all_reduce #3", ())
    assert [window for window, _ in before.windows] == [-1, -2, -3, -4, "run"]
    assert before.windows[3][1] == "the beginning to all_reduce #1"
    whole = source_view(recording, window="run")
    assert whole.title == "the whole run"
    assert row(whole, "reduce").windows == {0: 4, 1: 3, 2: 4, 3: 4} and not row(whole, "reduce").only_some
    assert row(whole, "leave").words == "only rank 1"


def test_a_window_that_begins_at_the_call_that_ranks_are_in_is_not_the_last_part():
    """A rank that makes another call instead also begins a window there, with nothing in it."""
    other = trains(Rank(1, 2), "loop forward check leave").waits("barrier", SCRIPT.at("barrier"))
    waits = trains(Rank(0, 2), USUAL).waits("all_reduce", SCRIPT.at("reduce"))
    view = source_view(record(waits.runs(SCRIPT, ""), other.runs(SCRIPT, ""), script=SCRIPT))
    assert view.title == "since all_reduce #3" and row(view, "leave").words == "only rank 1"


def test_the_file_is_that_in_which_ranks_part_by_a_new_line():
    ranks = [Rank(0, 2), Rank(1, 2)]
    for rank in ranks:
        for _ in range(2):
            rank.runs(SCRIPT, f"{USUAL} leave" if rank.rank == 0 else USUAL).calls("all_reduce", SCRIPT.at("reduce"))
    ranks[0].runs(SCRIPT, f"{USUAL} leave").waits("all_reduce", SCRIPT.at("reduce"))
    ranks[1].runs(HELPER, "bad").finishes()
    recording = record(*ranks, script=SCRIPT)
    recording = replace(recording, sources={**recording.sources, HELPER.file: HELPER.text})
    view = source_view(recording)
    assert view.file == HELPER.file
    assert view.parting == (SCRIPT.file, HELPER.file)
    assert view.notes == ("Ranks also ran different lines of train.py.",)
    assert source_view(recording, "train.py").file == source_view(recording, SCRIPT.file).file == SCRIPT.file


def test_without_a_difference_the_file_is_that_of_the_last_call():
    ranks = [
        Rank(rank, 2).runs(HELPER, "bad").runs(SCRIPT, USUAL).calls("all_reduce", SCRIPT.at("reduce"))
        for rank in (0, 1)
    ]
    view = source_view(record(*ranks, script=SCRIPT))
    assert (view.file, view.parting) == (SCRIPT.file, ())


@pytest.mark.parametrize(
    "asked",
    [
        {"file": "nope.py"},
        {"window": -9},
        {"window": 10**5000},
        {"window": [1]},
        {"window": 0},
        {"window": "all"},
        {"window": None},
    ],
)
def test_what_there_is_not(asked):
    with pytest.raises(UsageError):
        source_view(hung(), **asked)


def test_of_two_files_of_one_name_more_of_the_path_is_asked_for():
    other = Script("x = 1   # x\n", "/home/user/other/train.py")
    recording = record(*(Rank(rank, 2).runs(SCRIPT, "loop").runs(other, "x") for rank in (0, 1)), script=SCRIPT)
    with pytest.raises(UsageError, match="several files"):
        source_view(recording, "train.py")
    assert source_view(recording, "other/train.py").file == other.file


def test_ranks_without_lines_are_named_with_the_reason():
    recording = hung()
    old, told = (replace(recording.ranks[rank], lines=None) for rank in (2, 3))
    told = replace(told, history=(*told.history, LinesNotRecorded(why="other tools use sys.monitoring")))
    view = source_view(of(recording, rank2=old, rank3=told))
    assert view.ranks == (0, 1)
    assert "Executed lines of rank 2 are not recorded: that needs Python 3.12 or later" in view.notes[0]
    assert view.notes[1] == "Executed lines of rank 3 are not recorded: other tools use sys.monitoring."
    reported = {rank: RankRecord(rank, reported=True) for rank in (0, 1)}
    assert source_view(Recording(2, reported)).notes == (
        "Executed lines of ranks 0 and 1 are not in the logs and dumps that were read.",
    )
    unrecorded = Recording(1, {0: RankRecord(0, unrecorded=True)})
    assert "started without ddpnb" in source_view(unrecorded).notes[0]
    assert source_view(Recording(1, {})).notes and not source_view(Recording(1, {})).rows


def test_of_a_rank_with_dropped_lines_it_is_not_known_what_did_not_run():
    recording = hung()
    full = replace(recording.ranks[0], lines=replace(recording.ranks[0].lines, dropped=7))
    view = source_view(of(recording, rank0=full))
    assert view.unsure == (0,)
    assert row(view, "leave").others == (2, 3) and row(view, "leave").words == "not ranks 2 and 3"
    assert "may have run" in view.notes[0]


def test_a_text_that_the_ranks_did_not_run():
    recording = hung()
    edited = replace(recording, edited=(SCRIPT.file,))
    assert "was changed after the run began" in source_view(edited).notes[0]
    shifted = replace(recording, sources={SCRIPT.file: "\n" + SCRIPT.text})
    assert "they seem to have run another text" in source_view(shifted).notes[0]
    gone = source_view(replace(recording, sources={}))
    assert "is not in this recording" in gone.notes[0]
    assert {one.number for one in gone.rows} >= {SCRIPT.line("leave")} and not any(one.text for one in gone.rows)
    broken = source_view(replace(recording, sources={SCRIPT.file: SCRIPT.text + "\n)"}))
    assert "does not compile" in broken.notes[0] and row(broken, "leave").words == "only rank 1"


def test_without_a_part_in_common_it_is_the_whole_run():
    recording = hung(2)
    late = replace(recording.ranks[0].lines, windows=())
    view = source_view(of(recording, rank0=replace(recording.ranks[0], lines=late)))
    assert view.window == "run" and "no recorded part of the run in common" in view.notes[0]


def lines(*ran: tuple[int, ...] | None) -> list[SourceLine]:
    """Two ranks; None: no code."""
    return [
        SourceLine(number, "", who is not None, who or (), tuple({0, 1} - set(who)) if who is not None else ())
        for number, who in enumerate(ran, 1)
    ]


def test_lines_far_from_a_difference_are_folded():
    both, one, none = (0, 1), (1,), ()
    shown = folded(lines(*[both] * 5, one, *[none] * 2, *[none] * 3, *[None] * 1), 40)
    assert [str(entry) for entry in shown if isinstance(entry, Fold)] == [
        "lines 1-3: run by all ranks",
        "lines 9-12: run by no rank",
    ]
    assert [entry.number for entry in shown if isinstance(entry, SourceLine)] == [4, 5, 6, 7, 8]
    mixed = folded(lines(*[both] * 2, *[none] * 2, *[both] * 2, one), 40)[0]
    assert str(mixed) == "lines 1-4: 2 of 4 lines of code run by all ranks"
    assert len(folded(lines(both, both, both, both, one), 40)) == 5  # two lines are not folded


def test_of_very_many_differences_the_first_are_shown():
    shown = folded(lines(*[(1,)] * 1000), 40)
    assert len(shown) < 50 and str(shown[-1]).endswith("more lines that only some ranks ran")


def test_without_a_difference_what_ran_is_shown():
    shown = folded(lines(*[()] * 10, (0, 1), *[()] * 10), 40)
    assert [str(entry) for entry in (shown[0], shown[-1])] == [
        "lines 1-8: run by no rank",
        "lines 14-21: run by no rank",
    ]
