"""Every broken script gives its finding: code, culprits and the marked lines. Real ranks, real hangs.

No line is named that the named rank did not execute: these ranks record what they run.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import VICTIMS, marked_lines

TRACED = {"n": 4, "patience": 3.0}
ROOT = Path(__file__).parents[2]

CASES = {
    ("missing.py", "barrier_on_zero"): ("DDP301", [1, 2, 3]),
    ("missing.py", "early_return"): ("DDP301", [1]),
    ("missing.py", "skip_bad_batch"): ("DDP308", [1]),
    ("missing.py", "continue_over"): ("DDP301", [1]),
    ("missing.py", "swallowed"): ("DDP301", [2]),
    ("missing.py", "object_on_zero"): ("DDP301", [1, 2, 3]),
    ("missing.py", "asynchronous"): ("DDP308", [3]),
    ("missing.py", "monitored"): ("DDP301", [2]),
    ("missing.py", "in_thread"): ("DDP301", [0]),
    ("missing.py", "broadcast_skipped_by_root"): ("DDP301", [0]),
    ("missing.py", "one_callback_more"): ("DDP301", [1]),
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
    ("exchanges.py", "equal_parts"): ("DDP305", [3]),
    ("exchanges.py", "splits"): ("DDP305", [1]),
    ("meshes.py", "of_members"): ("DDP108", []),
    ("groups.py", "other_members"): ("DDP108", [1]),
    ("groups.py", "absent"): ("DDP102", [3]),
    ("groups.py", "too_large"): ("DDP102", [0, 1, 2, 3]),
    ("pipeline.py", "one_micro_batch_more"): ("DDP307", [3]),
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
    ("shared.py", "worker_raises"): ("DDP312", [2]),
    ("shared.py", "removed_file"): ("DDP603", [0]),
    ("shared.py", "package_lock"): ("DDP313", [1]),
    ("shared.py", "store_key"): ("DDP313", [1]),
    ("shared.py", "another_tag"): ("DDP307", [0, 1]),
    ("places.py", "managed"): ("DDP313", [1]),
    ("places.py", "tensor_parallel"): ("DDP301", [3]),
}
CRASHES = {
    "killed": 137,
    "left": 7,
    "raised": 1,
    "worker_raises": 1,
    "removed_file": 1,
    "exits": 5,
    "all_raise": 1,
    "cleaned_up": 1,
    "short_timeout": 1,
}


@pytest.mark.world
@pytest.mark.parametrize(("file", "case"), CASES, ids=[f"{file}-{case}" for file, case in CASES])
def test_named(scenario, file, case):
    code, culprits = CASES[file, case]
    script = VICTIMS / file
    run = scenario(
        f"victims/{file.removesuffix('.py')}-{case}", lambda world: world.run(script, case, stream=None).wait(30)
    )
    run.check_lines(least=1)
    findings = run.diagnosis.errors
    assert [(f.code, list(f.culprits)) for f in findings] == [(code, culprits)], str(run.diagnosis)
    lines: dict[int, set[int]] = {}
    for rank, site in findings[0].where:
        lines.setdefault(rank, set()).add(site.line)
    expected = {kind: marked_lines(script, kind, case) for kind in ("waiting", "culprit")}
    for rank in findings[0].waiting:
        assert not expected["waiting"] or lines[rank] & (expected["waiting"] | expected["culprit"]), rank
    for rank in findings[0].culprits:
        assert not expected["culprit"] or lines[rank] & (expected["culprit"] | expected["waiting"]), rank
    status = CRASHES.get(case, 3)
    if case == "short_timeout":  # it may be named before the ranks' own time-out fires
        assert run.exit_status in (1, 3)
    else:
        assert (run.outcome, run.exit_status) == ("crash" if status != 3 else "hang", status)


@pytest.mark.world
@pytest.mark.parametrize("file", ["data.py", "replicas.py"])
def test_silent_mistakes_name_only_lines_that_ran(scenario, file):
    """Each of these runs ends by itself; what is found is the matter of the tests beside."""
    cases = re.findall(r"^def (\w+)\(rank\)", (VICTIMS / file).read_text(), re.MULTILINE)
    stands_still = ("uneven", "worker_waits", "environment_waits")
    for case in [one for one in cases if one not in stands_still] if file == "data.py" else [REPLICAS]:
        name = f"silent/{file.removesuffix('.py')}-{case if file == 'data.py' else 'all'}"
        run = scenario(name, lambda world, case=case: world.run(VICTIMS / file, case, stream=None).wait(90))
        run.check_lines(least=1)


REPLICAS = "edited,edited_a_little,rate,momentum,not_synchronised,gradient,statistics"


@pytest.mark.world
def test_the_tour_names_only_lines_that_ran(scenario):
    """One branch of its loop has a ``continue`` that nobody takes: no card may point there."""
    script = ROOT / "notebooks" / "train.py"
    run = scenario("tour", lambda world: world.run(script, "--steps", "20", stream=None).wait(60))
    assert [f.code for f in run.diagnosis.findings] == ["DDP301", "DDP508"], str(run.diagnosis)
    run.check_lines(least=4)
    assert run.diagnosis.findings[0].culprits == (1,)
    text = script.read_text().splitlines()
    taken_back = next(number for number, line in enumerate(text, 1) if "continue" in line)
    assert f"train.py:{taken_back}" not in str(run.diagnosis) and f"ine {taken_back} " not in str(run.diagnosis)


@pytest.mark.world
def test_the_readmes_example_is_its_real_output(scenario, tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text()
    script, shown = re.search(
        r"`hang.py`.*?```python\n(.*?)```\n\n```\n\$ ddpnb run -n 4 hang.py\n(.*?)```", text, re.DOTALL
    ).groups()
    (tmp_path / "hang.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    run = scenario("readme", lambda world: world.run("hang.py", stream=None).wait(60))
    run.check_lines(least=4)
    assert [f.code for f in run.diagnosis.findings] == ["DDP308"]
    assert list(run.recording.sources.values()) == [script]

    def words(text):
        text = re.sub(r"(?m)^ +\w+ = .* on ranks? .*$", "", text)  # of ranks whose stack was read
        return re.sub(r", detected [\d.]+ s after the last progress", "", " ".join(text.split())).replace("/run/", "")

    if run.has_lines:
        assert words(str(run.diagnosis)) == words(shown)
    else:
        assert words(str(run.diagnosis)).startswith(words(shown.partition("  Ranks part")[0]))
