from __future__ import annotations

from ddpnb.recording.calls import Call, CallState, Site
from ddpnb.recording.source.paths import parting, path_to
from ddpnb.recording.stacks import Frame
from tests.rules.recordings import FILE, TORCH_FRAME, Rank, Script, line, record


def frame(number: int, function: str = "main", file: str = FILE) -> Frame:
    return Frame(file, number, function)


def last_call(rank: Rank) -> Call:
    return rank.record.calls[-1]


# -- how a call was reached


def test_the_path_to_a_call_are_the_users_frames_above_it():
    rank = Rank(0).waits("all_reduce", line(7, "step")).has_stack(frame(30), frame(7, "step"), TORCH_FRAME)
    assert path_to(rank.record, last_call(rank)) == (line(30), line(7, "step"))


def test_frames_below_the_call_do_not_belong_to_its_path():
    """A hook that runs within the call is the user's code too."""
    rank = Rank(0).waits("all_reduce", line(7)).has_stack(frame(7), TORCH_FRAME, frame(90, "hook"))
    assert path_to(rank.record, last_call(rank)) == (line(7),)


def test_of_a_recursion_the_whole_path_is_given():
    rank = Rank(0).waits("all_reduce", line(7, "down")).has_stack(frame(7, "down"), frame(7, "down"), TORCH_FRAME)
    assert path_to(rank.record, last_call(rank)) == (line(7, "down"), line(7, "down"))


def test_a_call_of_another_thread_is_found_in_that_threads_stack():
    rank = Rank(0).waits("all_reduce", line(7, "talk"), thread=9)
    rank.has_stack(frame(50)).has_stack(frame(40, "run"), frame(7, "talk"), TORCH_FRAME, thread=9)
    assert path_to(rank.record, last_call(rank)) == (line(40, "run"), line(7, "talk"))


def test_a_fenced_call_is_found_in_the_exceptions_frames():
    rank = Rank(0).calls("all_reduce", line(7, "step")).raises("CollectiveMismatch", "x", line(30), frame(7, "step"))
    assert path_to(rank.record, last_call(rank)) == (line(30), line(7, "step"))


def test_a_call_that_stands_in_no_stack_has_its_own_line_as_path():
    rank = Rank(0).calls("all_reduce", line(7)).computes(line(9))
    assert path_to(rank.record, last_call(rank)) == (line(7),)
    assert path_to(Rank(1).record, last_call(rank)) == (line(7),)


# -- where two paths part

SCRIPT = Script(
    """
    def main(rank):
        if rank == 0:
            one()  # one
        else:
            other()  # other
        after()  # after
    """
)


def part(one: tuple[Site, ...], other: tuple[Site, ...]):
    return parting(record(script=SCRIPT), one, other)


def test_equal_paths_are_the_same():
    found = part((SCRIPT.at("after"),), (SCRIPT.at("after"),))
    assert found.relation == "same"
    assert found.one == found.other == SCRIPT.at("after")


def test_paths_part_at_the_first_frame_that_differs():
    caller = Site(FILE, 100, "run")
    one = (caller, SCRIPT.at("one"), Site("lib.py", 3, "deep"))
    other = (caller, SCRIPT.at("after"))
    found = part(one, other)
    assert (found.one, found.other, found.relation) == (SCRIPT.at("one"), SCRIPT.at("after"), "sequence")


def test_branches_of_one_decision_are_exclusive():
    assert part((SCRIPT.at("one"),), (SCRIPT.at("other"),)).relation == "exclusive"


def test_one_line_that_leads_into_two_functions_was_told_apart_elsewhere():
    caller = SCRIPT.at("after")
    found = part((caller, Site(FILE, 50, "gather")), (caller, Site(FILE, 60, "reduce")))
    assert found.relation == "exclusive"


def test_one_line_that_leads_into_two_files_was_told_apart_elsewhere():
    caller = SCRIPT.at("after")
    found = part((caller, Site("a.py", 5, "save")), (caller, Site("b.py", 5, "save")))
    assert found.relation == "exclusive"


def test_single_lines_of_two_files_tell_nothing():
    assert part((Site("a.py", 5, "save"),), (Site("b.py", 5, "save"),)).relation == "unknown"


def test_single_lines_of_two_functions_tell_nothing():
    assert part((SCRIPT.at("after"),), (Site(FILE, 50, "gather"),)).relation == "unknown"


def test_a_path_that_ends_where_the_other_goes_on_tells_nothing():
    found = part((SCRIPT.at("after"),), (SCRIPT.at("after"), Site(FILE, 60, "reduce")))
    assert found.relation == "unknown"


def test_without_a_source_two_lines_of_one_function_tell_nothing():
    assert parting(record(), (line(4),), (line(9),)).relation == "unknown"


# -- ranks of which no stack is known


HELPED = Script(
    """
    def save(path):
        barrier()  # barrier


    def main(rank):
        for step in range(9):
            backward()  # backward
            if rank == 0:
                save("x")  # saves
    """
)


def test_a_rank_without_a_stack_is_compared_in_the_function_that_both_are_in():
    """Its path is its own line, and the one that called that function."""
    via = f"{HELPED.file}:{HELPED.line('saves')}"
    short = Site(HELPED.file, HELPED.line("barrier"), "save", via)
    rank = Rank(0).calls("barrier", short)
    mine = path_to(rank.record, last_call(rank))
    theirs = (HELPED.at("saves", "<module>"), HELPED.at("backward", "main"))
    apart = parting(record(rank, script=HELPED), mine, theirs)
    assert (apart.one.line, apart.other.line) == (HELPED.line("saves"), HELPED.line("backward"))
    assert apart.relation == "sequence"


def test_a_line_alone_is_compared_in_its_function():
    alone, stack = (HELPED.at("backward", "main"),), (line(99, "<module>"), HELPED.at("saves", "main"))
    recording = record(Rank(0), script=HELPED)
    for one, other in ((alone, stack), (stack, alone)):
        apart = parting(recording, one, other)
        assert {apart.one.line, apart.other.line} == {HELPED.line("saves"), HELPED.line("backward")}
        assert apart.relation == "sequence"


def test_the_path_of_a_call_that_the_fence_refused_is_that_of_the_refusal():
    """The script caught the exception, and its stack is elsewhere now."""
    rank = Rank(0).calls("all_reduce", line(7, "step"), state=CallState.FENCED)
    path = [{"file": FILE, "line": 30, "function": "main"}, {"file": FILE, "line": 7, "function": "step"}]
    rank.phase("fence", "done", call=last_call(rank).number, path=path).has_stack(frame(50), TORCH_FRAME)
    assert path_to(rank.record, last_call(rank)) == (line(30), line(7, "step"))
