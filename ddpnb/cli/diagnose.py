"""``ddpnb diagnose``: say what logs, dumps and recordings of a job show."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ddpnb.cli import add_patience, add_results, claim_results, say
from ddpnb.cli.run import add_lines
from ddpnb.errors import UsageError

if TYPE_CHECKING:
    from ddpnb.recording.recording import Recording

HELP = "say why a job hung or failed, from its logs, flight-recorder dumps, stacks or a recording"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb diagnose [options] PATH...\n       ddpnb diagnose [options] --pid PID..."
    parser.epilog = (
        "All files are taken for those of one job; what each of them is, is seen from its content. A folder of ddpnb run "
        "--record can be read while the job runs, and afterwards. "
        "Exit status: 0 nothing wrong is visible; 1 the diagnosis could not be written; 2 a file cannot be read, or nothing "
        "in it is known; 3 a hang, a mismatch or a failed rank; 4 completed, but with errors"
    )
    add_results(parser, recording="all that was read as a recording")
    parser.add_argument(
        "--pid", nargs="+", type=int, metavar="PID",
        help="instead of files: a launcher or ranks that run here without ddpnb; their stacks are read by py-spy, and "
        "NCCL's flight recorder is asked for its dump",
    )  # fmt: skip
    add_lines(parser)
    add_patience(parser)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders; - for the standard input")


def run(arguments: argparse.Namespace) -> int:
    """Read the files and show the diagnosis; returns the exit status."""
    from ddpnb.cli.run import save, show_diagnosis, show_lines
    from ddpnb.render.report import sources
    from ddpnb.rules.diagnose import diagnose

    claim_results(arguments)
    recording = _recording(arguments)
    diagnosis = diagnose(recording, arguments.patience)
    if text := sources(recording):
        say(text)
    show_diagnosis(diagnosis)
    show_lines(recording, arguments)
    statuses = {"ok": 0, "divergence": 4}
    status = save(diagnosis, arguments.json, statuses.get(diagnosis.outcome, 3))
    return save(recording, arguments.save, status)


def _recording(arguments: argparse.Namespace) -> Recording:
    """What the files say, or the processes.

    Raises:
        UsageError: neither is given, or both are.
    """
    from ddpnb.ranks.observe import records
    from ddpnb.world.loading import load

    if bool(arguments.pid) == bool(arguments.paths):
        raise UsageError(
            "files and --pid do not go together." if arguments.pid else "nothing to diagnose.",
            "Give logs, dumps or folders, or processes with --pid.",
        )
    if arguments.pid:
        from ddpnb.world import unprefixed

        say(f"reading stacks for {arguments.patience:g} s")
        return unprefixed.read(arguments.pid, arguments.patience)
    if all(map(records.is_records, arguments.paths)):
        return records.read(arguments.paths, arguments.patience)
    return load(arguments.paths)
