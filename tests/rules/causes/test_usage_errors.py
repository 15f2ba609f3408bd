"""A script that refuses its arguments: a usage error, and no exit in which the ranks differ."""

from __future__ import annotations

import pytest

from ddpnb.recording.ending import Ending
from ddpnb.recording.stacks import Frame
from tests.rules.recordings import FILE, Rank, diagnose, line, record

PARSE = Frame(FILE, 4, "main")
ARGPARSE = Frame("/usr/lib/python3.11/argparse.py", 2640, "exit", user=False)
CLICK = Frame("/venv/lib/python3.11/site-packages/click/core.py", 1100, "main", user=False)
OF_ARGPARSE = "usage: train.py [-h] --lr LR\n                [--name NAME]\ntrain.py: error: argument --lr: invalid float value: 'x'\n"
OF_CLICK = "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: Invalid value for '--lr': 'x' is not a valid float.\n"
OF_TYPER = (
    "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n╭─ Error ─────────────────────╮\n"
    "│ Missing option '--lr'.      │\n╰─────────────────────────────╯\n"
)


def refuses(rank, output, *frames, how="exited", code=2):
    return Rank(rank, 2).absent().writes(output)._ends(Ending(how, code, frames=frames, at_ns=5))


@pytest.mark.parametrize(
    ("output", "library", "message"),
    [
        (OF_ARGPARSE, ARGPARSE, "argument --lr: invalid float value: 'x'"),
        (OF_CLICK, CLICK, "Invalid value for '--lr': 'x' is not a valid float"),
        (OF_TYPER, CLICK, "Missing option '--lr'"),
    ],
    ids=["argparse", "click", "typer"],
)
def test_all_ranks_refuse_their_arguments(output, library, message):
    found = diagnose(record(*(refuses(rank, "hello\n" + output, PARSE, library) for rank in range(2))))
    assert (found.outcome, found.exit_codes, len(found.findings)) == ("crash", {0: 2, 1: 2}, 1)
    finding = found.findings[0]
    assert (finding.code, finding.culprits, finding.certainty) == ("DDP312", (0, 1), "proven")
    assert finding.summary == f"The script refused its arguments on ranks 0 and 1: {message}."
    assert finding.evidence[0].lower().startswith("it printed: usage: train.py")
    assert {(rank, site.line) for rank, site in finding.where} == {(0, 4), (1, 4)}
    assert "together" not in finding.remedy


def test_a_process_of_which_only_the_output_is_known():
    found = diagnose(record(*(refuses(rank, OF_ARGPARSE, how="died") for rank in range(2))))
    assert found.outcome == "crash"
    assert found.findings[0].summary.startswith("The script refused its arguments on ranks 0 and 1: argument --lr")
    assert found.findings[0].certainty == "likely"


@pytest.mark.parametrize("library", [ARGPARSE, CLICK], ids=["argparse", "click"])
def test_a_rank_of_which_no_output_is_recorded(library):
    finding = diagnose(record(*(refuses(rank, "", PARSE, library) for rank in range(2)))).findings[0]
    assert finding.summary == "The script refused its arguments on ranks 0 and 1: see the usage that it printed."


def test_arguments_that_one_rank_refuses():
    recording = record(refuses(0, OF_ARGPARSE, PARSE, ARGPARSE), Rank(1, 2).starts(line(6)))
    finding = diagnose(recording).findings[0]
    assert (finding.culprits, finding.waiting) == ((0,), (1,))
    assert finding.summary.endswith("invalid float value: 'x'; rank 1 waits for it.")


def test_ranks_that_refuse_different_arguments():
    other = OF_ARGPARSE.replace("'x'", "'y'")
    recording = record(refuses(0, OF_ARGPARSE, PARSE, ARGPARSE), refuses(1, other, PARSE, ARGPARSE))
    finding = diagnose(recording).findings[0]
    assert "float value: 'x' on rank 0, " in finding.summary and "float value: 'y' on rank 1" in finding.summary
    assert "the same on all ranks" in finding.remedy


@pytest.mark.parametrize(
    "make",
    [
        lambda rank: refuses(rank, OF_ARGPARSE, PARSE),
        lambda rank: refuses(rank, OF_ARGPARSE, PARSE, ARGPARSE, code=3),
        lambda rank: refuses(rank, "train.py: error: no such file\n", PARSE, ARGPARSE),
        lambda rank: refuses(rank, "error: before\n" + OF_ARGPARSE.rpartition("train.py: error")[0], PARSE, ARGPARSE),
        lambda rank: refuses(rank, "", PARSE),
    ],
    ids=[
        "calls sys.exit itself",
        "another status",
        "no usage",
        "no error after it",
        "no output, calls sys.exit itself",
    ],
)
def test_other_exits_are_none(make):
    found = diagnose(record(*(make(rank) for rank in range(2))))
    assert found.findings[0].code == "DDP312" and "refused" not in found.findings[0].summary
