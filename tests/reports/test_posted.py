"""Logs as people post them, with what is right: one file, or one folder, and one expectation each.

The expectations were written before the first run. ``posted/expected.json`` has, for each, the codes of which one is right, the ranks at
fault (null: not compared), whether no error at all is right too, and the codes that must not be certain.
"""

import json
from pathlib import Path

import pytest

from ddpnb.reports import formats, logs, together
from ddpnb.reports.origin import with_origin
from ddpnb.rules.diagnose import diagnose
from ddpnb.world.loading import load

FOLDER = Path(__file__).parent / "posted"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
FILES = [name for name in EXPECTED if (FOLDER / name).is_file()]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict(name):
    right = EXPECTED[name]
    found = diagnose(load(FOLDER / name)).errors
    if not found:
        assert right["silent_ok"]
        return
    assert found[0].code in right["codes"]
    if right["culprits"] is not None:
        assert list(found[0].culprits) in right["culprits"]
    certain = {one.code for one in found if one.certainty != "likely"}
    assert certain.isdisjoint(right["forbidden_if_certain"])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_likely_verdict_says_so_and_points_into_the_log(name):
    found = diagnose(load(FOLDER / name))
    for one in found.errors[:1]:
        if one.certainty == "likely" and one.culprits:
            assert one.summary.startswith("Probably ")
            assert any("(inferred)" in line for line in one.evidence)
        assert any(f"{Path(name).stem}" in line or ":" in line for line in one.evidence)
        assert found.answer.startswith(one.summary) and "Please attach" in found.answer


@pytest.mark.parametrize(
    ("name", "sentence", "line"),
    [("vllm_worker_memory.txt", "This process's tensors", 5), ("ray_node_memory.txt", "The log says it", 8)],
)
def test_a_sentence_points_at_the_line_that_says_it(name, sentence, line):
    (first, *_) = diagnose(load(FOLDER / name)).errors
    assert any(one.startswith(sentence) and f"[{name}:{line}: " in one for one in first.evidence)


def test_a_rank_that_only_the_launcher_names_occurs():
    (first, *_) = diagnose(load(FOLDER / "slurm_task_not_in_barrier.txt")).errors
    assert any(one.startswith("Rank 0 occurs in these files, but no call") for one in first.evidence)


def answer(name, text):
    """The first error: its code, the ranks at fault, and whether it is certain."""
    found = formats.facts_of(with_origin(logs.read(name, text), text))
    errors = diagnose(together.recording(found)).errors if any(one.facts for one in found) else ()
    return (errors[0].code, set(errors[0].culprits), errors[0].certainty != "likely") if errors else None


def certain_and_different(name, step):
    raw = (FOLDER / name).read_bytes()
    whole = answer(name, raw.decode())
    ends = [place + more for place, byte in enumerate(raw) if byte == 0x0A for more in (0, 1)]
    for cut in sorted({*range(step, len(raw), step), *ends[:: max(1, step // 40)]}):
        found = answer(name, raw[:cut].decode(errors="replace"))
        if found is not None and found[2] and not (whole and found[0] == whole[0] and found[1] <= whole[1]):
            yield cut, found, whole


@pytest.mark.parametrize("name", FILES[::6])
def test_a_log_that_is_cut_gives_no_certain_answer_that_is_another(name):
    assert not list(certain_and_different(name, 331))


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_a_log_that_is_cut_anywhere_gives_no_certain_answer_that_is_another(name):
    assert not list(certain_and_different(name, 7))
