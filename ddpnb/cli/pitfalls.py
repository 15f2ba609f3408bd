"""``ddpnb pitfalls``: broken training scripts with their fixes, to list, show and run."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap

from ddpnb.cli import STATUS_INTERRUPTED, complain, say
from ddpnb.errors import DdpnbError, UsageError
from ddpnb.pitfalls import Pitfall

HELP = "list, show and run example bugs, each with its fix"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "exit status of pitfalls run: as for ddpnb run (3 hang, 4 the ranks diverged, 0 with --fixed)"
    parser.add_argument(
        "what", nargs="?", choices=("list", "show", "run"), default="list", help="what to do (default: list)"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the pitfall")
    parser.add_argument("--fixed", action="store_true", help="show or run the fixed script instead of the broken one")


def run(arguments: argparse.Namespace) -> int:
    """List, show or run; returns the exit status."""
    try:
        return _run(arguments)
    except DdpnbError as error:
        complain(error)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        say("interrupted; all ranks have been stopped")
        return STATUS_INTERRUPTED


def _run(arguments: argparse.Namespace) -> int:
    from ddpnb import pitfalls

    if arguments.what == "list":
        if arguments.name is not None or arguments.fixed:
            raise UsageError("list takes no other arguments.", "Run one: ddpnb pitfalls run NAME")
        widest = max(map(len, pitfalls.names()))
        for one in pitfalls.all_of():
            print(f"{one.finding}  {one.name.ljust(widest)}  {one.title}")
        return 0
    if arguments.name is None:
        raise UsageError(f"{arguments.what} needs the name of a pitfall.", "List them: ddpnb pitfalls list")
    one = pitfalls.get(arguments.name)
    if arguments.what == "show":
        script = one.fixed if arguments.fixed else one.broken
        print(f"{_wrapped(str(one))}\n\n{script}\n\n{script.read_text(encoding='utf-8').rstrip()}\n")
        print(one.difference)
        return 0
    if one.lacking:
        raise UsageError(f"{one.name} cannot be run here: {one.lacking}.", f"ddpnb pitfalls show {one.name} shows it.")
    return _run_one(one, fixed=arguments.fixed)


def _run_one(one: Pitfall, *, fixed: bool) -> int:
    from ddpnb.render import card
    from ddpnb.world import launch

    with launch(one.ranks, patience=min(one.patience, 10.0), fence=one.fence) as world:
        going = world.run(one.fixed if fixed else one.broken, leave_after_crash=True).wait()
        found = going.diagnosis
        card.show(found)
        if not fixed:
            print(
                f"\n{_wrapped(str(one))}\n\nRun the fixed script: ddpnb pitfalls run {one.name} --fixed",
                file=sys.stderr,
            )
        return going.exit_status


def _wrapped(told: str) -> str:
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    blocks = re.split(r"\n\n|\n(?=- )", told)
    lines = [
        textwrap.fill(" ".join(b.split()), width, subsequent_indent="  " if b.startswith("- ") else "") for b in blocks
    ]
    return "\n\n".join(lines).replace("\n\n- ", "\n- ")
