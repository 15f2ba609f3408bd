"""Logs as people post them: one file or one folder each, what is right, and the whole card.

``posted/expected.json`` has what is right, written before the first run: the codes of which one is right, the ranks at fault (null: not
compared), whether no error at all is right too, codes that must not be certain, and words that the open questions must contain.
``cards/NAME.txt`` is the diagnosis as a terminal of 100 columns shows it. ``pytest --accept`` writes the cards: read the diff as a stranger would.
"""

import json
import re
from pathlib import Path

import pytest

from ddpnb.cli import main
from ddpnb.errors import UsageError
from ddpnb.recording.findings import Diagnosis
from ddpnb.reports import files, formats, logs, together
from ddpnb.reports.origin import with_origin
from ddpnb.rules.diagnose import diagnose
from ddpnb.world.loading import load

FOLDER, CARDS = Path(__file__).parent / "posted", Path(__file__).parent / "cards"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
FILES = [name for name in EXPECTED if (FOLDER / name).is_file()]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_card(name, monkeypatch, request):
    monkeypatch.chdir(FOLDER)
    diagnosis = diagnose(load(name))
    check(diagnosis, EXPECTED[name])
    card = CARDS / f"{name.removesuffix('.txt')}.txt"
    if request.config.getoption("--accept"):
        card.write_text(f"{diagnosis}\n")
    assert card.read_text() == f"{diagnosis}\n"


def check(diagnosis: Diagnosis, right: dict) -> None:
    found = diagnosis.errors
    assert right["silent_ok"] or found
    assert all(words in " ".join(diagnosis.notes) for words in right.get("says", ()))
    if found:
        assert found[0].code in right["codes"]
        assert right["culprits"] is None or list(found[0].culprits) in right["culprits"]
        assert {one.code for one in found if one.certainty != "likely"}.isdisjoint(right["forbidden_if_certain"])


def test_the_example_of_the_documentation(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    page = (Path(__file__).parents[2] / "docs" / "reported-hangs.md").read_text()
    log, output = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[:2]
    (tmp_path / "watchdog.log").write_text(log)
    assert main(["diagnose", "watchdog.log"]) == 3
    assert capsys.readouterr().err == output


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


_LESS = {"DDP706": "DDP311"}  # killed for memory: killed


def certain_and_different(name, step):
    raw = (FOLDER / name).read_bytes()
    step = max(step, len(raw) // 600)
    whole = answer(name, raw.decode())
    ends = [place + more for place, byte in enumerate(raw) if byte == 0x0A for more in (0, 1)]
    for cut in sorted({*range(step, len(raw), step), *ends[:: max(1, step // 40)]}):
        found = answer(name, raw[:cut].decode(errors="replace"))
        if (
            found is not None
            and found[2]
            and not (whole and found[0] in (whole[0], _LESS.get(whole[0])) and found[1] <= whole[1])
        ):
            yield cut, found, whole


@pytest.mark.parametrize("name", FILES[::8])
def test_a_log_that_is_cut_gives_no_certain_answer_that_is_another(name):
    assert not list(certain_and_different(name, 331))


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_a_log_that_is_cut_anywhere_gives_no_certain_answer_that_is_another(name):
    assert not list(certain_and_different(name, 7))


_ORDINARY = "".join(f"INFO 2024-05-01 12:00:00 step {step} lr 3e-4 loss 2.{step % 97}\n" for step in range(1500))


def in_the_middle(name, folder, monkeypatch, ends):
    """The first error of a posted log between ordinary lines, of which the first and last so many bytes are read as a whole."""
    (folder / "train.log").write_text(f"{_ORDINARY}{(FOLDER / name).read_text().strip()}\n{_ORDINARY}")
    monkeypatch.setattr(files, "FIRST", ends)
    monkeypatch.setattr(files, "LAST", ends)
    return [(one.code, one.culprits, one.sides, one.certainty) for one in diagnose(load(folder / "train.log")).errors]


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_the_middle_of_a_large_log_says_what_the_whole_of_it_says(name, tmp_path, monkeypatch):
    try:
        whole = in_the_middle(name, tmp_path, monkeypatch, 8 << 20)
    except UsageError:
        return
    assert in_the_middle(name, tmp_path, monkeypatch, 20_000) == whole
