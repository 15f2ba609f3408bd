"""Every broken script gives its finding: code, culprits and the marked lines. Real ranks, real hangs."""

from __future__ import annotations

import pytest

from tests.conftest import VICTIMS, marked_lines

CASES = {
    ("missing.py", "barrier_on_zero"): ("DDP301", [1, 2, 3]),
    ("missing.py", "early_return"): ("DDP301", [1]),
    ("missing.py", "skip_bad_batch"): ("DDP308", [1]),
    ("missing.py", "continue_over"): ("DDP301", [1]),
    ("missing.py", "swallowed"): ("DDP301", [2]),
    ("missing.py", "object_on_zero"): ("DDP301", [1, 2, 3]),
    ("missing.py", "asynchronous"): ("DDP301", [3]),
    ("missing.py", "monitored"): ("DDP301", [2]),
    ("missing.py", "in_thread"): ("DDP301", [0]),
    ("missing.py", "broadcast_skipped_by_root"): ("DDP301", [0]),
    ("mismatch.py", "operation"): ("DDP302", [2]),
    ("mismatch.py", "shape"): ("DDP303", [3]),
    ("mismatch.py", "dtype"): ("DDP304", [1]),
    ("mismatch.py", "reduce_op"): ("DDP305", [0]),
    ("mismatch.py", "root"): ("DDP305", [3]),
    ("mismatch.py", "layout"): ("DDP305", [2]),
    ("mismatch.py", "swapped_functions"): ("DDP302", [1]),
    ("groups.py", "crossed"): ("DDP306", [0, 1]),
    ("groups.py", "crossed_branches"): ("DDP306", [0, 1]),
    ("groups.py", "skipped_in_group"): ("DDP301", [0]),
    ("groups.py", "not_made"): ("DDP108", [2]),
    ("groups.py", "other_members"): ("DDP108", [1]),
    ("groups.py", "absent"): ("DDP102", [3]),
    ("groups.py", "too_large"): ("DDP102", [0, 1, 2, 3]),
    ("p2p.py", "both_receive"): ("DDP307", [0, 1]),
    ("p2p.py", "ring"): ("DDP307", [0, 1, 2, 3]),
    ("p2p.py", "other_tag"): ("DDP307", [0, 1]),
    ("p2p.py", "never_sent"): ("DDP307", [0]),
    ("p2p.py", "thrown_away"): ("DDP307", [0]),
    ("training.py", "uneven"): ("DDP308", [1, 2, 3]),
    ("training.py", "uneven_then_barrier"): ("DDP308", [3]),
    ("training.py", "killed"): ("DDP311", [1]),
    ("training.py", "left"): ("DDP311", [2]),
    ("training.py", "raised"): ("DDP312", [1]),
    ("training.py", "exits"): ("DDP312", [1]),
    ("training.py", "all_raise"): ("DDP312", [0, 1, 2, 3]),
    ("training.py", "cleaned_up"): ("DDP312", [1]),
    ("training.py", "evaluate_on_zero"): ("DDP411", [0]),
    ("training.py", "wrapped_on_some"): ("DDP301", [3]),
    ("training.py", "short_timeout"): ("DDP317", [0, 1, 2, 3]),
    ("elsewhere.py", "lock"): ("DDP313", [1]),
    ("elsewhere.py", "empty_queue"): ("DDP313", [1]),
    ("elsewhere.py", "read_socket"): ("DDP313", [1]),
    ("elsewhere.py", "sleep"): ("DDP313", [1]),
    ("elsewhere.py", "poll"): ("DDP313", [1]),
    ("elsewhere.py", "file_lock"): ("DDP313", [1]),
    ("elsewhere.py", "child"): ("DDP313", [1]),
    ("elsewhere.py", "output"): ("DDP313", [1]),
    ("elsewhere.py", "stopped"): ("DDP314", [1]),
    ("elsewhere.py", "native"): ("DDP314", [1]),
}
CRASHES = {"killed": 137, "left": 7, "raised": 1, "exits": 5, "all_raise": 1, "cleaned_up": 1, "short_timeout": 1}


@pytest.mark.world
@pytest.mark.parametrize(("file", "case"), CASES, ids=[f"{file}-{case}" for file, case in CASES])
def test_named(world, file, case):
    code, culprits = CASES[file, case]
    script = VICTIMS / file
    run = world.run(script, case, stream=None).wait(30)
    assert run.done, "no verdict"
    findings = run.diagnosis.errors
    assert [(f.code, list(f.culprits)) for f in findings] == [(code, culprits)], str(run.diagnosis)
    lines = {rank: site.line for rank, site in findings[0].where}
    expected = {kind: marked_lines(script, kind, case) for kind in ("waiting", "culprit")}
    for rank in findings[0].waiting:
        assert not expected["waiting"] or lines[rank] in expected["waiting"] | expected["culprit"], rank
    for rank in findings[0].culprits:
        assert not expected["culprit"] or lines[rank] in expected["culprit"] | expected["waiting"], rank
    status = CRASHES.get(case, 3)
    if case == "short_timeout":  # it may be named before the ranks' own time-out fires
        assert run.exit_status in (1, 3)
    else:
        assert (run.outcome, run.exit_status) == ("crash" if status != 3 else "hang", status)
