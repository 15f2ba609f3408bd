"""``ddpnb export``: a small script that hangs as a recording does."""

from __future__ import annotations

import argparse
import shlex

HELP = "write a small torchrun script that hangs as a recording does, without ddpnb"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ddpnb.cli.reenact import add_reports

    parser.usage = "ddpnb export [options] PATH... -o FILE"
    add_reports(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the script to write")
    parser.add_argument(
        "--timeout",
        type=int,
        default=20,
        metavar="S",
        help="seconds after which its calls give up, and the script ends (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the script; returns the exit status."""
    from ddpnb.cli import say
    from ddpnb.reenacting import export
    from ddpnb.render.text import printable

    size = export(arguments.paths, arguments.output, ranks=arguments.ranks, timeout=arguments.timeout)
    say(
        f"wrote {printable(arguments.output)}. Run it: torchrun --nproc-per-node {size} {printable(shlex.quote(arguments.output))}"
    )
    return 0
