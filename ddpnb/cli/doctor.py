"""``ddpnb doctor``: a minimal check of the distributed setup, without training code."""

from __future__ import annotations

import argparse
from contextlib import suppress

from ddpnb.cli import add_ranks, claim, ranks, say, show
from ddpnb.cli.run import save
from ddpnb.errors import CannotWrite, UsageError

HELP = "check the distributed setup step by step, without training code"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit status: 0 every step succeeded on all ranks; 1 a step failed; 2 usage error; 3 ranks are blocked"
    )
    add_ranks(parser)
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="time limit of each step in seconds (default: 60)"
    )
    parser.add_argument("--verbose", action="store_true", help="print the details of each check too")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON")
    parser.add_argument(
        "--bundle",
        metavar="ZIP",
        help="write report, JSON and logs, without secrets and names, to attach to a bug report",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the checks; returns the exit status."""
    from ddpnb.world.launching import doctor

    if not arguments.timeout > 0:
        raise UsageError(f"--timeout must be a positive number of seconds, not {arguments.timeout!r}.")
    size = ranks(arguments)
    claim(arguments.json, arguments.bundle)
    checkup = doctor(size, backend=arguments.backend, timeout=arguments.timeout)
    status = save(checkup, arguments.json, checkup.exit_status)
    with suppress(OSError, ValueError):  # the terminal was closed
        show(checkup.report() if arguments.verbose else str(checkup))
    if arguments.bundle is not None:
        try:
            checkup.bundle(arguments.bundle)
        except CannotWrite as error:
            say(str(error))
            return status or 1
        say(f"attach this file to a bug report: {arguments.bundle}")
    return status
