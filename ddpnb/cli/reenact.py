"""``ddpnb reenact``: a recorded hang again, on live ranks."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack

from ddpnb.cli import add_results

HELP = "re-enact a recorded hang on live ranks of this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb reenact [options] PATH..."
    parser.epilog = (
        "The ranks make the calls of the recording, in its order, with small tensors on the CPU. Exit status: as for ddpnb run: 3 "
        "a hang or mismatch; 0 the ranks completed; 2 usage error, or nothing to re-enact; that of the script if it crashed"
    )
    add_reports(parser)
    parser.add_argument("--keep", action="store_true", help="leave the ranks alive, and print how to open them")
    add_results(parser, "write the diagnosis of the live ranks as JSON", "a recording of the live ranks")
    parser.set_defaults(account=False, lines=False, lines_of=None, quiet=False, fence="raise")


def add_reports(parser: argparse.ArgumentParser) -> None:
    """The recording, and on how many ranks."""
    parser.add_argument(
        "-n", "--ranks", type=int, default=8, metavar="N",
        help="at most so many ranks; a larger job is represented by a few ranks of each kind (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a recording, or the logs and dumps of one job: files and folders"
    )


def run(arguments: argparse.Namespace) -> int:
    """Re-enact it; returns the exit status."""
    from ddpnb.cli import claim_results, show
    from ddpnb.cli.run import fence_of, ran, report
    from ddpnb.ranks import devices
    from ddpnb.ranks.jobs.spawned import Program
    from ddpnb.render.terminal import wants_colour
    from ddpnb.studies.reenactment import words as render
    from ddpnb.studies.reenactment.agreement import compare
    from ddpnb.studies.reenactment.plan import root
    from ddpnb.studies.reenactment.reenact import PATIENCE_S, WAIT_S, write_script
    from ddpnb.world.plain_run import PlainRun

    claim_results(arguments)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ddpnb-reenact-"))
        plan, path = write_script(arguments.paths, folder, arguments.ranks)
        made = devices.plan(plan.size, "gloo"), Program(path, (), False)
        job = ran(
            stack,
            lambda: PlainRun(*made, fence=fence_of(arguments), patience=PATIENCE_S, stream=None),
            lambda job: job.run.wait(PATIENCE_S + WAIT_S),
            arguments,
        )
        diagnosis = job.run.diagnosis
        show(render.summary(plan, compare(plan, root(diagnosis)), colour=wants_colour(sys.stdout)))
        return report(job, job.run, diagnosis, job.run.exit_status, arguments)
