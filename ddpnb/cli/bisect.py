"""``ddpnb bisect``: find what makes a program fail: options, a number, or a commit."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ddpnb.cli import add_patience, add_ranks, claim, ranks, say, show
from ddpnb.errors import UsageError
from ddpnb.recording import interrupts
from ddpnb.texts import shell_word

if TYPE_CHECKING:
    from ddpnb.studies.bisection.bisecting import Bisection
    from ddpnb.studies.bisection.search import Trial

COMMAND = "COMMAND"  # stands for the script where a command is given
HELP = "find which options, values or commit make a program hang, crash or diverge"
UNDECIDED = 5
_KEPT = (
    *("nproc", "backend", "patience", "fork", "module"),
    *("vary", "env", "range", "git", "ladder", "by", "repeat", "confidence"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb bisect [options] (SCRIPT | -m MODULE) [ARGS...]\n       ddpnb bisect [options] -- COMMAND..."
    parser.epilog = (
        "Give the failing command as it is. A probe counts as bad if it has the same finding at the same place as this "
        "command; other failures do not count. Without --vary, --env, --range and --git all options of the script are "
        "varied. exit status: 0 a smallest cause was found; 1 nothing fails; 2 usage error; 5 undecided; 130 Ctrl-C"
    )
    add_ranks(parser)
    parser.add_argument(
        "--vary", action="append", default=[], metavar="NAME[=A|B]",
        help="an option of the script that is there or not (--vary amp), or has a harmless and a failing value "
        "(--vary 'num-workers=0|4'); nproc and backend are those of ddpnb; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=A|B",
        help="an environment variable with a harmless and a failing value; empty: not set; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--range", metavar="NAME=LOW..HIGH", help="find the first value that fails; LOW works, HIGH fails"
    )
    parser.add_argument(
        "--git", metavar="GOOD..BAD", help="find the first commit that fails, each in a checkout of its own"
    )
    parser.add_argument(
        "--by", choices=("steps",),
        help="steps: read from the recording of a run the first optimizer step at which the replicas differ",
    )  # fmt: skip
    parser.add_argument(
        "--ladder", action="store_true",
        help="begin with a single process without options, add ranks, data, workers, precision, evaluation and logging, "
        "then everything; the first of these that fails is narrowed down",
    )  # fmt: skip
    parser.add_argument(
        "--repeat", default="1", metavar="N",
        help="for a failure that does not always happen: a configuration works if it does N times; auto: as often as "
        "--confidence needs",
    )  # fmt: skip
    parser.add_argument(
        "--confidence", type=float, default=0.99, metavar="C", help="wanted with --repeat auto (default: 0.99)"
    )
    add_patience(parser)
    parser.add_argument("--fork", action="store_true", help="start faster, as for ddpnb run")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON")
    parser.add_argument(
        "--log", metavar="FILE", help="where to keep the log (default: ddpnb-bisect.json, until a cause is found)"
    )
    parser.add_argument("--resume", metavar="LOG", help="continue a search from its log")
    parser.add_argument("--repro", metavar="FILE", help="write the smallest failing command as a shell script")
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is the name of a module, as for python -m")
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="training script, as for torchrun")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments for SCRIPT")
    parser.set_defaults(command_line=None)


def run(arguments: argparse.Namespace) -> int:
    """Search, and print what was found; returns the exit status."""
    resumed = arguments.resume is not None
    bisection = _continued(arguments) if resumed else _begun(arguments)
    claim(arguments.json, arguments.repro)
    if resumed:
        say(f"continues after {_probes(bisection)}")
    keeps_log = resumed or arguments.log is not None
    try:
        bisection.save()
        _search(bisection)
    except BaseException:
        interrupts.notice()
        _write(bisection, arguments)
        if bisection.trials and bisection.path:
            say(f"the log is kept; continue with: ddpnb bisect --resume {shell_word(bisection.path)}")
        elif not keeps_log:
            bisection.remove_log()
        raise
    outcome = _report(bisection, arguments)
    if not keeps_log and outcome != "undecided":
        bisection.remove_log()
    return {"found": 0, "nothing fails": 1}.get(outcome, UNDECIDED)


def _continued(arguments: argparse.Namespace) -> Bisection:
    """The search of the log that is to be resumed, which keeps the options it was begun with."""
    from ddpnb.studies.bisection.bisect import continued
    from ddpnb.studies.bisection.log import searching

    if arguments.script is not None or arguments.command_line is not None:
        raise UsageError("--resume knows the command from the log.", "Leave the command out.")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    if given := [name for name in _KEPT if getattr(arguments, name) != parser.get_default(name)]:
        raise UsageError(
            f"--resume knows {', '.join(given)} from the log.",
            "Leave the options of the search out, or begin a new one.",
        )
    if (process := searching(arguments.resume)) is not None:
        raise UsageError(f"the search of this log still runs, in process {process}.", "Wait for it, or end it first.")
    return continued(arguments.resume)


def _begun(arguments: argparse.Namespace) -> Bisection:
    """The search that the options describe.

    Raises:
        UsageError: they do not.
    """
    from ddpnb.ranks.environment import working_directory
    from ddpnb.studies.bisection.bisect import of_command
    from ddpnb.studies.bisection.command import Request
    from ddpnb.studies.bisection.log import take_log
    from ddpnb.studies.bisection.worktrees import Repository
    from ddpnb.world.run_requests import check_script

    launcher = arguments.command_line is not None
    command = tuple(arguments.command_line) if launcher else (arguments.script, *arguments.args)
    if not command or command[0] is None:
        raise UsageError("no command given.", "Give the failing command: ddpnb bisect -n 2 train.py --amp")
    if launcher and (arguments.nproc is not None or arguments.module or arguments.fork):
        raise UsageError(
            "-n, -m and --fork go with a script, not with a command after --.", "Give them to the command."
        )
    if not launcher and not arguments.module:
        check_script(command[0])
    how = (arguments.module, 2 if launcher else ranks(arguments), arguments.backend, arguments.patience, arguments.fork)
    searched = (arguments.vary, arguments.env, arguments.range, arguments.git, arguments.ladder, arguments.by)
    request = Request(command, not launcher, *how, *searched, _repeat(arguments.repeat), arguments.confidence)
    bisection = of_command(request, arguments.log)
    if request.git is not None and (changed := Repository(working_directory()).uncommitted()):
        say(f"changes that are not committed are in no probe: {', '.join(changed[:4])}{', ...' * (len(changed) > 4)}")
    if bisection.by_hand:
        bisection.path, said = take_log(arguments.log)
        if said:
            say(said)
    return bisection


def _repeat(text: str) -> int | None:
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 1000):
        raise UsageError(f"--repeat {text!r} is neither auto nor a number from 1 to 1000.")
    return int(text)


def _search(bisection: Bisection) -> None:
    from ddpnb.studies.bisection import words as render
    from ddpnb.studies.bisection.space import SetSpace

    search, always = bisection.search, not bisection.search.sometimes
    if not bisection.by_hand:
        say("runs it, and once more if its recording leaves several places")
    elif isinstance(search.space, SetSpace):
        say(f"varies {search.space}: about {bisection.expected} probes")
    else:
        say(f"searches {len(search.step.candidates)} values: about {bisection.expected} probes")

    def tell(trial: Trial) -> None:
        nonlocal always
        say(render.trial(trial, len(bisection.trials), bisection.left, bisection.search))
        if always and search.sometimes:
            always = False
            say("it does not always fail: measures how often, and repeats what works")

    bisection.run(tell)


def _report(bisection: Bisection, arguments: argparse.Namespace) -> str:
    """Print what was found; returns the outcome."""
    assert bisection.result is not None
    _write(bisection, arguments)
    show(f"{bisection.conclusion()}\n{_probes(bisection)}, {bisection.seconds:.0f} s")
    if bisection.result.outcome == "found":
        show(f"  {bisection.typed() or bisection.commit()}")
        if bisection.finding is not None:
            code, name, summary = (bisection.finding[key] for key in ("code", "name", "summary"))
            show(f"{code} {name}: {summary}")
        if arguments.repro is not None:
            bisection.write_repro(arguments.repro)
    return bisection.result.outcome


def _probes(bisection: Bisection) -> str:
    number = len(bisection.trials)
    return f"{number} probe{'s' * (number != 1)}"


def _write(bisection: Bisection, arguments: argparse.Namespace) -> None:
    if arguments.json is not None:
        from ddpnb.recording.files import write_whole

        write_whole(arguments.json, json.dumps(bisection.to_json(), indent=1) + "\n")
