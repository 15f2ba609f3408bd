"""Two runs side by side: where their ranks differ first, in each kind of what was recorded."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.render.views.run_differences import first_differences
from tests.rules.recordings import Rank, Script, line, record

SCRIPT = Script("""
def main(rank):
    total = ones()      # begin
    if rank == 1:       # test
        return          # leave
    all_reduce(total)   # reduce
""")


def run(*places, marks="begin test reduce", output="", ends=True):
    rank = Rank(0, 1).runs(SCRIPT, marks)
    for number in places:
        rank = rank.calls("all_reduce", line(number))
    recording = record(rank.finishes() if ends else rank.dies(-9), script=SCRIPT)
    return replace(recording, ranks={0: replace(recording.ranks[0], output=output)})


def told(first, second):
    return {one.kind: (one.first, one.second) for one in first_differences(first, second)}


def test_the_same_run_twice_has_no_difference():
    assert first_differences(run(9, output="a"), run(9, output="a")) == ()


def test_the_first_call_that_is_another_one():
    found = told(run(9, 10, 11), run(9, 12, 11))
    assert found["calls"][0].startswith("all_reduce #2 (") and found["calls"][0].endswith("train.py:10")
    assert found["calls"][1].endswith("train.py:12")


def test_a_run_that_made_fewer_calls():
    assert told(run(9, 10), run(9))["calls"][1] == "no more calls"


def test_calls_that_are_not_kept_from_the_beginning_are_not_compared():
    later = run(9, 10)
    later = replace(later, ranks={0: replace(later.ranks[0], forgotten=5)})
    assert "calls" not in told(later, run(11))


def test_the_first_line_that_one_of_them_ran():
    found = told(run(marks="begin test reduce"), run(marks="begin test leave"))
    assert found["executed lines"] == (
        f"train.py:{SCRIPT.line('leave')} was not run",
        f"train.py:{SCRIPT.line('leave')} was run",
    )


def test_files_that_one_run_alone_recorded_are_not_compared():
    first, second = run(), run()
    rank = second.ranks[0]
    lines = tuple(replace(one, site=replace(one.site, file="/elsewhere/train.py")) for one in rank.lines.lines)
    moved = replace(second, ranks={0: replace(rank, lines=replace(rank.lines, lines=lines))})
    assert first_differences(first, moved) == ()


def test_ends_and_outputs():
    found = told(run(output="step 1\nstep 2"), run(output="step 1\nstep 3", ends=False))
    assert found["ending"] == ("finished", "killed (SIGKILL)")
    assert found["output"] == ("'step 2'", "'step 3'")
    assert told(run(output="a"), run(output="a\nb"))["output"] == ("nothing", "'b'")
