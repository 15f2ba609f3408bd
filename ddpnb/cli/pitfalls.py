"""``ddpnb pitfalls``: broken training scripts with their fixes, to list, show and run."""

from __future__ import annotations

import argparse
import sys

from ddpnb.cli import show
from ddpnb.errors import UsageError
from ddpnb.pitfalls import Pitfall
from ddpnb.render.terminal import output, table

HELP = "list, show and run example bugs, each with its fix"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb pitfalls [list | show NAME | run NAME] [--fixed]"
    parser.epilog = "exit status of pitfalls run: as for ddpnb run (3 hang, 4 the ranks diverged, 0 with --fixed)"
    parser.add_argument(
        "what", nargs="?", choices=("list", "show", "run"), default="list", help="what to do (default: list)"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the pitfall")
    parser.add_argument("--fixed", action="store_true", help="show or run the fixed script instead of the broken one")


def run(arguments: argparse.Namespace) -> int:
    """List, show or run; returns the exit status."""
    from ddpnb import pitfalls

    if arguments.what == "list":
        if arguments.name is not None or arguments.fixed:
            raise UsageError("list takes no other arguments.", "Run one: ddpnb pitfalls run NAME")
        show(table([(one.finding, one.name, one.title) for one in pitfalls.all_of()]))
        return 0
    if arguments.name is None:
        raise UsageError(f"{arguments.what} needs the name of a pitfall.", "List them: ddpnb pitfalls list")
    one = pitfalls.get(arguments.name)
    if arguments.what == "show":
        script = one.fixed if arguments.fixed else one.broken
        show("\n\n".join([_story(one), str(script), script.read_text(encoding="utf-8").rstrip(), one.difference]))
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
            again = f"Run the fixed script: ddpnb pitfalls run {one.name} --fixed"
            print(f"\n{_story(one)}\n\n{again}", file=sys.stderr)
        return going.exit_status


def _story(pitfall: Pitfall) -> str:
    from ddpnb.render.markdown import PageMarkdown

    return output(PageMarkdown(str(pitfall)))
