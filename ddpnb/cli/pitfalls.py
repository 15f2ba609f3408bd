"""``ddpnb pitfalls``: broken training scripts with their fixes, to list, show and run."""

from __future__ import annotations

import argparse
import sys

from ddpnb.cli import show
from ddpnb.errors import UsageError
from ddpnb.pitfalls import Pitfall
from ddpnb.render import as_text
from ddpnb.render.document import Prose
from ddpnb.render.terminal import Paragraph as Wrapped
from ddpnb.render.terminal import output, wants_colour

HELP = "list, show and run example bugs, each with its fix"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb pitfalls [list [WORDS] | show NAME | run NAME] [--fixed]"
    parser.epilog = (
        "exit status of pitfalls run: as for ddpnb run (3 hang, 4 completed, but with errors, 0 with --fixed)"
    )
    parser.add_argument(
        "what", nargs="?", choices=("list", "show", "run"), default="list", help="what to do (default: list)"
    )
    parser.add_argument("name", nargs="*", metavar="NAME", help="name of the pitfall; of list: words that occur in it")
    parser.add_argument("--fixed", action="store_true", help="show or run the fixed script instead of the broken one")


def run(arguments: argparse.Namespace) -> int:
    """List, show or run; returns the exit status."""
    from ddpnb import pitfalls

    if arguments.what == "list":
        if arguments.fixed:
            raise UsageError("list takes no --fixed.", "Run one: ddpnb pitfalls run NAME --fixed")
        show(_listed(" ".join(arguments.name)))
        return 0
    if len(arguments.name) != 1:
        raise UsageError(f"{arguments.what} needs the name of a pitfall.", "List them: ddpnb pitfalls list")
    pitfall = pitfalls.get(arguments.name[0])
    if arguments.what == "show":
        script = pitfall.fixed if arguments.fixed else pitfall.broken
        source = script.read_text(encoding="utf-8").rstrip()
        show("\n\n".join([_story(pitfall), str(script), source, pitfall.difference]))
        return 0
    if pitfall.lacking:
        hint = f"ddpnb pitfalls show {pitfall.name} shows it."
        raise UsageError(f"{pitfall.name} cannot be run here: {pitfall.lacking}.", hint)
    return _run(pitfall, fixed=arguments.fixed)


def _listed(words: str) -> str:
    """The pitfalls of each chapter below its name, those that are seen at once first."""
    from ddpnb import pitfalls
    from ddpnb.rules.catalogue import CHAPTERS

    chapters = pitfalls.by_chapter(words)
    if not chapters:
        raise UsageError(f"no pitfall has the words {words!r}.", "All of them: ddpnb pitfalls list")
    rows: list[Wrapped] = []
    for chapter, those in chapters.items():
        rows.append(Wrapped((f"{chapter} {CHAPTERS[chapter]}", "bold")))
        rows += [
            Wrapped(one.title, first=f"  {one.finding}  {one.name:<34}  {one.difficulty:<6}  ", rest=" " * 54)
            for one in those
        ]
    return output(*rows, colour=wants_colour(sys.stdout))


def _run(pitfall: Pitfall, *, fixed: bool) -> int:
    from ddpnb.render import card
    from ddpnb.world.launching import launch

    patience = min(pitfall.patience, 10.0)
    with launch(pitfall.ranks, patience=patience, end_after_patience=True, fence=pitfall.fence) as world:
        run = world.run(pitfall.fixed if fixed else pitfall.broken, leave_after_crash=True).wait()
        card.show(run.diagnosis)
        if fixed:
            print(f"\n{_changed(pitfall)}", file=sys.stderr)
        else:
            again = f"Run the fixed script: ddpnb pitfalls run {pitfall.name} --fixed"
            print(f"\n{_story(pitfall)}\n\n{again}", file=sys.stderr)
        return run.exit_status


def _changed(pitfall: Pitfall) -> str:
    return f"{as_text.text(Prose(f'What was fixed: {pitfall.fix}'))}\n\n{pitfall.difference}"


def _story(pitfall: Pitfall) -> str:
    return as_text.text(Prose(str(pitfall)))
