"""The command line. Each command is one small file over the facade."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ddpnb import __version__
from ddpnb.cli import doctor, explain, lab, pitfalls, run, scan

COMMANDS = {"run": run, "lab": lab, "explain": explain, "scan": scan, "pitfalls": pitfalls, "doctor": doctor}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of ``ddpnb``; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="ddpnb", description="The debugger for PyTorch distributed training.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"ddpnb {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        one = commands.add_parser(name, help=module.HELP, description=module.HELP, allow_abbrev=False)
        module.add_arguments(one)
    arguments = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    return COMMANDS[arguments.command].run(arguments)
