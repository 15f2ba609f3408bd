"""``ddpnb diagnose``: say what logs, dumps and recordings of a job show."""

from __future__ import annotations

import argparse

from ddpnb.cli import say

HELP = "say why a job hung or failed, from its logs, flight-recorder dumps, stacks or a recording"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb diagnose [options] PATH..."
    parser.epilog = (
        "All files are taken for those of one job; what each of them is, is seen from its content. "
        "exit status: 0 nothing wrong is visible; 1 the diagnosis could not be written; 2 a file cannot be read, or nothing "
        "in it is known; 3 a hang, a mismatch or a failed rank; 4 the ranks diverged"
    )
    parser.add_argument("--json", metavar="FILE", help="write the diagnosis as JSON")
    parser.add_argument(
        "--save", metavar="FILE", help="write all that was read as a recording, which ddpnb.load() reads"
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files and folders; - for the standard input")


def run(arguments: argparse.Namespace) -> int:
    """Read the files and show the diagnosis; returns the exit status."""
    from ddpnb.cli.run import claim_results, save, show_diagnosis
    from ddpnb.diagnosis.diagnose import diagnose
    from ddpnb.loading import load
    from ddpnb.render.report import sources
    from ddpnb.render.text import printable

    claim_results(arguments)
    recording = load(arguments.paths)
    diagnosis = diagnose(recording)
    if text := sources(recording):
        say(printable(text))
    show_diagnosis(diagnosis)
    statuses = {"ok": 0, "divergence": 4}
    status = save(diagnosis, arguments.json, statuses.get(diagnosis.outcome, 3))
    return save(recording, arguments.save, status)
