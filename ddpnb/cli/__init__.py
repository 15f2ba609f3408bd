"""The command line. Each command is one small file over the facade."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from ddpnb import __version__, interrupts

COMMANDS = ("run", "lab", "explain", "scan", "pitfalls", "doctor")
STATUS_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of ``ddpnb``; returns the exit status."""
    with interrupts.ending(for_good=argv is None):
        try:
            return _run(sys.argv[1:] if argv is None else list(argv))
        except KeyboardInterrupt:  # before a command had begun, or when it was over
            interrupts.notice()  # else it is raised again, where nobody catches it
            print("ddpnb: interrupted", file=sys.stderr)
            return STATUS_INTERRUPTED


def complain(error: Exception) -> None:
    """Say what went wrong; names of files and words of ranks cannot drive the terminal."""
    from ddpnb.render.text import printable

    print(f"ddpnb: {printable(str(error))}", file=sys.stderr)


def _run(argv: list[str]) -> int:
    # Imported here, where an interrupt is answered with a message.
    import argparse
    from importlib import import_module

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            super().error(message.encode("unicode_escape").decode() if not message.isprintable() else message)

    parser = Parser(prog="ddpnb", description="The debugger for PyTorch distributed training.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"ddpnb {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    modules = {name: import_module(f"ddpnb.cli.{name}") for name in COMMANDS}
    for name, module in modules.items():
        one = commands.add_parser(name, help=module.HELP, description=module.HELP, allow_abbrev=False)
        module.add_arguments(one)
    arguments = parser.parse_args(argv)
    return modules[arguments.command].run(arguments)
